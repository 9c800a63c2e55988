package dataflow

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// GroupID names a node group for good. Tokens carry it, so that one from another group is recognised.
type GroupID [16]byte

func (g GroupID) String() string { return fmt.Sprintf("%x", g[:]) }

// Token says which rows an append, or what came before it, has covered. A read that carries one waits for a cut whose
// positions cover it (min_token). On the wire it is opaque text.
type Token struct {
	Group     GroupID
	Positions Positions
}

// SessionToken says which cut of a pipeline a session has seen; later reads of the session see no older one (G3).
type SessionToken struct {
	Group      GroupID
	Pipeline   PipelineUID
	Timeline   Timeline
	Checkpoint CheckpointID
}

// The first byte of a token's bytes. Sent: append-only.
const (
	tokenRows    = 1
	tokenSession = 2
	tokenPage    = 3
)

// maxTokenBytes bounds what a decoder looks at: a token holds at most a few positions per shard and stream.
const maxTokenBytes = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealToken appends a checksum and prints the bytes.
func sealToken(b []byte) string {
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

// openToken checks text and returns the bytes after the kind and the group.
func openToken(kind byte, what, text string) (GroupID, []byte, error) {
	var g GroupID
	bad := func(why string) (GroupID, []byte, error) {
		return g, nil, Errorf(ReasonTokenInvalid, "the %s is damaged: %s", what, why).WithHint("pass it as it was handed out")
	}
	if len(text) > maxTokenBytes {
		return bad("it is too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return bad("it is not base64url")
	}
	if len(b) < 1+len(g)+4 {
		return bad("it is too short")
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return bad("its checksum differs")
	}
	if body[0] != kind {
		return bad("it is a token of another kind")
	}
	copy(g[:], body[1:])
	return g, body[1+len(g):], nil
}

func newToken(kind byte, g GroupID) []byte { return append([]byte{kind}, g[:]...) }

// String returns the token's text.
func (t Token) String() string {
	b := newToken(tokenRows, t.Group)
	for _, k := range t.Positions.Sorted() {
		b = binary.AppendUvarint(b, uint64(k.Stream))
		b = binary.AppendUvarint(b, uint64(k.Shard))
		b = binary.AppendUvarint(b, uint64(t.Positions[k]))
	}
	return sealToken(b)
}

// JoinTokens returns the text of a token that covers what two of one group cover; "" covers nothing. It refuses damage with
// TOKEN_INVALID and tokens of different groups with TOKEN_FOREIGN.
func JoinTokens(a, b string) (string, error) {
	if a == "" || b == "" {
		return a + b, nil
	}
	group, _, err := openToken(tokenRows, "token", a)
	if err != nil {
		return "", err
	}
	x, err := ParseToken(a, group)
	if err != nil {
		return "", err
	}
	y, err := ParseToken(b, group)
	if err != nil {
		return "", err
	}
	x.Positions.Advance(y.Positions)
	return x.String(), nil
}

// ParseToken reads a token's text. It refuses damage with TOKEN_INVALID and another group's token with TOKEN_FOREIGN.
func ParseToken(text string, group GroupID) (Token, error) {
	g, b, err := openToken(tokenRows, "token", text)
	if err != nil {
		return Token{}, err
	}
	if g != group {
		return Token{}, foreign("token", g, group)
	}
	t := Token{Group: g, Positions: make(Positions)}
	for len(b) > 0 {
		var v [3]uint64
		for i := range v {
			x, n := binary.Uvarint(b)
			if n <= 0 {
				return Token{}, Errorf(ReasonTokenInvalid, "the token is damaged: it ends within a position")
			}
			v[i], b = x, b[n:]
		}
		if v[1] >= MaxShards {
			return Token{}, Errorf(ReasonTokenInvalid, "the token is damaged: it names shard %d", v[1])
		}
		t.Positions[StreamShard{StreamID(v[0]), ShardID(v[1])}] = Offset(v[2])
	}
	return t, nil
}

// String returns the session token's text.
func (t SessionToken) String() string {
	b := newToken(tokenSession, t.Group)
	b = binary.AppendUvarint(b, uint64(t.Pipeline))
	b = binary.AppendUvarint(b, uint64(t.Timeline))
	b = binary.AppendUvarint(b, uint64(t.Checkpoint))
	return sealToken(b)
}

// Compare orders the cuts of one pipeline's name by when they were made: a deployment after the one before it, a timeline
// after the one that it left, a checkpoint after the one before.
func (t SessionToken) Compare(o SessionToken) int {
	return cmp.Or(cmp.Compare(t.Pipeline, o.Pipeline), cmp.Compare(t.Timeline, o.Timeline), cmp.Compare(t.Checkpoint, o.Checkpoint))
}

// ReadSessionToken reads a session token's text for who only hands it on, whatever group it is of.
func ReadSessionToken(text string) (SessionToken, error) {
	g, _, err := openToken(tokenSession, "session token", text)
	if err != nil {
		return SessionToken{}, err
	}
	return ParseSessionToken(text, g)
}

// ParseSessionToken reads a session token's text, with the same refusals as ParseToken.
func ParseSessionToken(text string, group GroupID) (SessionToken, error) {
	g, b, err := openToken(tokenSession, "session token", text)
	if err != nil {
		return SessionToken{}, err
	}
	if g != group {
		return SessionToken{}, foreign("session token", g, group)
	}
	var v [3]uint64
	for i := range v {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return SessionToken{}, Errorf(ReasonTokenInvalid, "the session token is damaged: it is too short")
		}
		v[i], b = x, b[n:]
	}
	if len(b) > 0 {
		return SessionToken{}, Errorf(ReasonTokenInvalid, "the session token is damaged: it is too long")
	}
	return SessionToken{Group: g, Pipeline: PipelineUID(v[0]), Timeline: Timeline(v[1]), Checkpoint: CheckpointID(v[2])}, nil
}

func foreign(what string, got, want GroupID) error {
	return Errorf(ReasonTokenForeign, "the %s comes from node group %s; this is %s", what, got, want).
		WithHint("use tokens with the group that gave them")
}

// PageToken continues a scan or query: it is bound to one cut, held by a lease, and to one request.
type PageToken struct {
	Group      GroupID
	Pipeline   PipelineUID
	Timeline   Timeline
	Checkpoint CheckpointID
	Lease      string
	Request    uint64 // hash of the request's parameters
	After      []byte // the last key that was answered, in canonical bytes
}

// String returns the page token's text.
func (t PageToken) String() string {
	b := newToken(tokenPage, t.Group)
	for _, v := range []uint64{uint64(t.Pipeline), uint64(t.Timeline), uint64(t.Checkpoint), t.Request, uint64(len(t.Lease))} {
		b = binary.AppendUvarint(b, v)
	}
	b = append(b, t.Lease...)
	return sealToken(append(b, t.After...))
}

// ParsePageToken reads a page token's text, with the same refusals as ParseToken.
func ParsePageToken(text string, group GroupID) (PageToken, error) {
	g, b, err := openToken(tokenPage, "page token", text)
	if err != nil {
		return PageToken{}, err
	}
	if g != group {
		return PageToken{}, foreign("page token", g, group)
	}
	var v [5]uint64
	for i := range v {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return PageToken{}, Errorf(ReasonTokenInvalid, "the page token is damaged: it is too short")
		}
		v[i], b = x, b[n:]
	}
	if v[4] > uint64(len(b)) {
		return PageToken{}, Errorf(ReasonTokenInvalid, "the page token is damaged: its lease is too long")
	}
	return PageToken{
		Group: g, Pipeline: PipelineUID(v[0]), Timeline: Timeline(v[1]), Checkpoint: CheckpointID(v[2]), Request: v[3],
		Lease: string(b[:v[4]]), After: b[v[4]:],
	}, nil
}
