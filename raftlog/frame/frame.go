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

// Overhead is the number of bytes that a frame adds to a command: version, length, checksum.
const Overhead = 1 + 4 + 4

// version is the first byte of a frame. It changes when the layout does; older versions stay readable.
const version = 1

// ErrCorrupt says that a frame's bytes are not those that were framed. It is never worth a retry on the same bytes.
var ErrCorrupt = errors.New("frame: checksum, length or version of a log entry is wrong")

// Append appends the frame of cmd to dst.
func Append(dst, cmd []byte) []byte {
	dst = append(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(cmd)))
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[len(dst)-5:], cmd))
	return append(dst, cmd...)
}

// Open checks a frame and returns the command in it, which shares b's memory. The error is ErrCorrupt.
func Open(b []byte) ([]byte, error) {
	if len(b) < Overhead || b[0] != version {
		return nil, ErrCorrupt
	}
	cmd := b[Overhead:]
	if binary.LittleEndian.Uint32(b[1:]) != uint32(len(cmd)) {
		return nil, ErrCorrupt
	}
	if binary.LittleEndian.Uint32(b[5:]) != checksum(b[:5], cmd) {
		return nil, ErrCorrupt
	}
	return cmd, nil
}

// checksum covers the head too, so that a flipped version or length cannot pass for another valid frame.
func checksum(head, cmd []byte) uint32 {
	t := crc32.MakeTable(crc32.Castagnoli) // the standard library keeps this table; no allocation
	return crc32.Update(crc32.Update(0, t, head), t, cmd)
}
