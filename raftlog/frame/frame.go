// Package frame puts a checksum around every command that enters a Raft log.
//
// No log store below hashicorp/raft notices a flipped bit in a stored payload (bbolt returns it, wrong, without an
// error), and neither does the library when it hands the payload to the FSM. So the command carries its own version,
// length and CRC32C from the proposer to Apply, through every store and every connection on the way.
package frame

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Overhead is the number of bytes that a frame adds to a command: version, length, checksum. An origin adds more.
const (
	Overhead     = 1 + 4 + 4
	OverheadFrom = Overhead + 8 + 8
)

// The first byte of a frame is its version. It changes when the layout does; older versions stay readable.
const (
	versionPlain   = 1 // version | length | checksum | command
	versionFrom    = 2 // version | length | checksum | session | seq | command
	versionBarrier = 3 // version | length | checksum | session | seq
)

// Origin says who proposed a command: the proposer's session and its number in it. The proposer recognises its command
// by it when it is applied, whoever carried it into the log. The zero Origin is none.
type Origin struct {
	Session, Seq uint64
	// Barrier says that there is no command: the proposer waits for the entry alone.
	Barrier bool
}

// ErrCorrupt says that a frame's bytes are not those that were framed. It is never worth a retry on the same bytes.
var ErrCorrupt = errors.New("frame: checksum, length or version of a log entry is wrong")

// Append appends the frame of cmd to dst.
func Append(dst, cmd []byte) []byte {
	dst = append(dst, versionPlain)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(cmd)))
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[len(dst)-5:], cmd))
	return append(dst, cmd...)
}

// AppendFrom appends the frame of cmd with its origin to dst. A barrier has no cmd.
func AppendFrom(dst, cmd []byte, o Origin) []byte {
	start := len(dst)
	if o.Barrier {
		dst = append(dst, versionBarrier)
	} else {
		dst = append(dst, versionFrom)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(cmd)))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, o.Session)
	dst = binary.LittleEndian.AppendUint64(dst, o.Seq)
	dst = append(dst, cmd...)
	binary.LittleEndian.PutUint32(dst[start+5:], checksum(dst[start:start+5], dst[start+Overhead:]))
	return dst
}

// Open checks a frame and returns the command in it, which shares b's memory. The error is ErrCorrupt.
func Open(b []byte) ([]byte, error) {
	cmd, _, err := OpenFrom(b)
	return cmd, err
}

// OpenFrom is Open, and returns the command's origin, if it has one.
func OpenFrom(b []byte) (cmd []byte, o Origin, err error) {
	if len(b) < Overhead {
		return nil, o, ErrCorrupt
	}
	head := Overhead
	switch b[0] {
	case versionPlain:
	case versionFrom, versionBarrier:
		head = OverheadFrom
	default:
		return nil, o, ErrCorrupt
	}
	if len(b) < head || binary.LittleEndian.Uint32(b[1:]) != uint32(len(b)-head) ||
		binary.LittleEndian.Uint32(b[5:]) != checksum(b[:5], b[Overhead:]) {
		return nil, o, ErrCorrupt
	}
	if b[0] != versionPlain {
		o.Session, o.Seq = binary.LittleEndian.Uint64(b[Overhead:]), binary.LittleEndian.Uint64(b[Overhead+8:])
		o.Barrier = b[0] == versionBarrier
	}
	if o.Barrier && len(b) > head {
		return nil, o, ErrCorrupt
	}
	return b[head:], o, nil
}

// checksum covers the head too, and the origin, so that a flipped version or length cannot pass for another valid frame.
func checksum(head, cmd []byte) uint32 {
	t := crc32.MakeTable(crc32.Castagnoli) // the standard library keeps this table; no allocation
	return crc32.Update(crc32.Update(0, t, head), t, cmd)
}
