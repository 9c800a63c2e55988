package peernet

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ErrClosed says that the Net, or one of its listeners, is closed.
var ErrClosed = fmt.Errorf("peernet: closed: %w", net.ErrClosed)

// ErrNoAddress says that nobody knows where a node is.
var ErrNoAddress = errors.New("peernet: the address of the node is not known")

// Reason is why a connection was refused. Numbers are sent: they are only added.
type Reason uint8

// The reasons. 0 is no refusal.
const (
	ReasonAccepted    Reason = 0
	ReasonVersion     Reason = 1 // of another protocol version
	ReasonGroup       Reason = 2 // of another group
	ReasonUnknownNode Reason = 3 // the group has no node of this name
	ReasonData        Reason = 4 // the node came back with other data (N2)
	ReasonTarget      Reason = 5 // another node than the wanted one is at the address
	ReasonService     Reason = 6 // the service is not served, or not yet
	ReasonBusy        Reason = 7 // a bound was reached (N4)
	ReasonCertificate Reason = 8 // the certificate is for another node (N5)
	ReasonClosing     Reason = 9 // the node stops
)

var reasonTexts = [...]string{"accepted", "wrong version", "wrong group", "unknown node", "wrong data", "wrong node",
	"no such service", "busy", "wrong certificate", "closing"}

func (r Reason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Temporary says that the same connection may be accepted later without anybody doing something.
func (r Reason) Temporary() bool { return r == ReasonService || r == ReasonBusy || r == ReasonClosing }

// Refusal is the error of a connection that one side refused, before anything of the service was said.
type Refusal struct {
	Reason Reason
	// Peer is the other side as far as it is known.
	Peer Identity
	// Message says what was refused, and how to mend it.
	Message string
	// Theirs says that the other side refused.
	Theirs bool
}

func (e *Refusal) Error() string {
	if e.Theirs {
		return fmt.Sprintf("refused by node %s: %s: %s", e.Peer.Node, e.Reason, e.Message)
	}
	return fmt.Sprintf("refused node %s: %s: %s", e.Peer.Node, e.Reason, e.Message)
}

// Is makes errors.Is(err, &Refusal{Reason: r}) match by reason.
func (e *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Reason == e.Reason
}

// IsAbsent says whether a connection was not made because what it was for is not there: nothing listens at the node's address,
// or the node serves other things and not this, or it stops. A node that does not answer may be there.
func IsAbsent(err error) bool {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Theirs && (r.Reason == ReasonService || r.Reason == ReasonClosing)
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// refuse returns a refusal of this side.
func refuse(r Reason, peer Identity, format string, args ...any) *Refusal {
	return &Refusal{Reason: r, Peer: peer, Message: fmt.Sprintf(format, args...)}
}
