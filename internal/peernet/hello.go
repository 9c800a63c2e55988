package peernet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the protocol that this package speaks: hello, answer, and what the services say. It changes when an older
// node would misunderstand a newer one.
const Version = 2

const (
	helloMagic  = "WEIRPEER"
	answerMagic = "WEIRANSW"
	// headBytes are magic, version and length of the body; they stay the same in every version, so that a node can tell
	// any other that it is of another version.
	headBytes = 8 + 2 + 2
	// maxBody bounds a hello's and an answer's body: seven short texts.
	maxBody = 4 << 10
)

// errMalformed says that the other side does not speak this protocol.
var errMalformed = errors.New("peernet: this is not a hello of a Weir node")

// Identity is who a node is. Zero fields are unknown, or not there yet.
type Identity struct {
	// Node is the node's name.
	Node string
	// Data is the id of its data directory (N2).
	Data string
	// Group is the group's id; empty before the group is bootstrapped, or before this node has heard of it.
	Group string
	// GroupName is what the operator calls the group; it stands for the id while there is none (N3).
	GroupName string
	// Addr is where other nodes reach it.
	Addr string
}

// fits says whether two identities can be of one group (N3).
func (a Identity) fits(b Identity) bool {
	if a.Group != "" && b.Group != "" {
		return a.Group == b.Group
	}
	return a.GroupName == b.GroupName
}

// group names the group for people.
func (a Identity) group() string {
	if a.Group != "" {
		return a.Group
	}
	return fmt.Sprintf("%q (not bootstrapped)", a.GroupName)
}

// hello is what a dialler says first.
type hello struct {
	version uint16
	from    Identity
	target  string // the node that is wanted; empty: whoever is there
	service string
}

// answer is what an acceptor says to a hello.
type answer struct {
	version uint16
	reason  Reason
	from    Identity
	message string // for people; empty when accepted
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// cutText takes a text off b.
func cutText(b []byte) (s string, rest []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return "", nil, errMalformed
	}
	return string(b[k : k+int(n)]), b[k+int(n):], nil
}

func appendIdentity(b []byte, id Identity) []byte {
	for _, s := range []string{id.Node, id.Data, id.Group, id.GroupName, id.Addr} {
		b = appendText(b, s)
	}
	return b
}

func cutIdentity(b []byte) (id Identity, rest []byte, err error) {
	for _, s := range []*string{&id.Node, &id.Data, &id.Group, &id.GroupName, &id.Addr} {
		if *s, b, err = cutText(b); err != nil {
			return id, nil, err
		}
	}
	return id, b, nil
}

// message frames a body.
func message(magic string, version uint16, body []byte) ([]byte, error) {
	if len(body) > maxBody {
		return nil, fmt.Errorf("peernet: the names in a hello take %d bytes; %d are allowed", len(body), maxBody)
	}
	b := append(make([]byte, 0, headBytes+len(body)), magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...), nil
}

// readMessage reads what message framed. It reads no byte more.
func readMessage(r io.Reader, magic string) (version uint16, body []byte, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	if string(head[:len(magic)]) != magic {
		return 0, nil, &strangeError{head[:]}
	}
	version = binary.LittleEndian.Uint16(head[8:])
	n := binary.LittleEndian.Uint16(head[10:])
	if n > maxBody {
		return 0, nil, errMalformed
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return version, body, nil
}

func (h *hello) encode() ([]byte, error) {
	b := appendIdentity(nil, h.from)
	b = appendText(b, h.target)
	return message(helloMagic, h.version, appendText(b, h.service))
}

// readHello reads a hello. Of another version it tells the version alone.
func readHello(r io.Reader) (*hello, error) {
	version, b, err := readMessage(r, helloMagic)
	if err != nil {
		return nil, err
	}
	h := &hello{version: version}
	if version != Version {
		return h, nil
	}
	if h.from, b, err = cutIdentity(b); err != nil {
		return nil, err
	}
	if h.target, b, err = cutText(b); err != nil {
		return nil, err
	}
	if h.service, b, err = cutText(b); err != nil {
		return nil, err
	}
	if len(b) > 0 {
		return nil, errMalformed
	}
	return h, nil
}

func (a *answer) encode() ([]byte, error) {
	b := appendIdentity([]byte{byte(a.reason)}, a.from)
	return message(answerMagic, a.version, appendText(b, a.message))
}

// readAnswer reads an answer. One of another version is a refusal that tells the version alone.
func readAnswer(r io.Reader) (*answer, error) {
	version, b, err := readMessage(r, answerMagic)
	if err != nil {
		return nil, err
	}
	a := &answer{version: version, reason: ReasonVersion}
	if version != Version {
		return a, nil
	}
	if len(b) == 0 {
		return nil, errMalformed
	}
	a.reason = Reason(b[0])
	if a.from, b, err = cutIdentity(b[1:]); err != nil {
		return nil, err
	}
	if a.message, b, err = cutText(b); err != nil {
		return nil, err
	}
	if len(b) > 0 {
		return nil, errMalformed
	}
	return a, nil
}
