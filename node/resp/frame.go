package resp

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/tidwall/redcon"
)

const (
	// maxCommand bounds one command as it is sent. Why not larger: a connection's buffer grows to it. Why not smaller: MGET of
	// maxArgs keys of 100 bytes is as long.
	maxCommand = 1 << 20
	// maxArgs bounds the words of a command: a name and as many keys as one request may have (dataflow.MaxBatchGetKeys).
	maxArgs = 10_001
	// maxInline bounds a command that is typed as a line of text. People type less.
	maxInline = 4 << 10
	// maxHeader is the longest line that says how long something is.
	maxHeader = 32
)

// protocolError is the answer to what is not RESP. The connection ends with it, because there is no next command to find.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// command takes the first command off b. n is how many bytes it takes; 0 when it has not arrived whole. args has its words,
// in memory of b or of its own: none for a command that has no answer, such as an empty line.
func command(b []byte, buf [][]byte) (n int, args [][]byte, err error) {
	args = buf[:0]
	if len(b) == 0 {
		return 0, args, nil
	}
	if b[0] != '*' {
		return inline(b, args)
	}
	count, at, err := header(b, 1, "invalid multibulk length")
	if err != nil || at == 0 {
		return 0, args, err
	}
	if count > maxArgs {
		return 0, args, protocolError(fmt.Sprintf("invalid multibulk length: %d words are over the limit of %d", count, maxArgs))
	}
	for range count { // of *-1 none: Redis ignores it
		if at == len(b) {
			return 0, args, nil
		}
		if b[at] != '$' {
			return 0, args, protocolError(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, start, err := header(b, at+1, "invalid bulk length")
		switch {
		case err != nil || start == 0:
			return 0, args, err
		case size < 0:
			return 0, args, protocolError("invalid bulk length")
		case size > maxCommand || start+size+2 > maxCommand:
			return 0, args, protocolError(fmt.Sprintf("invalid bulk length: a command is over the limit of %d bytes", maxCommand))
		case len(b) < start+size+2:
			return 0, args, nil
		}
		at = start + size
		if b[at] != '\r' || b[at+1] != '\n' {
			return 0, args, protocolError("a bulk string does not end where its length says")
		}
		args = append(args, b[start:at:at])
		at += 2
	}
	return at, args, nil
}

// header reads the number that begins at from and ends with a line's end, and returns where the next line begins: 0 when
// the line is not whole. Only decimal digits are a number, after a minus perhaps.
func header(b []byte, from int, wrong protocolError) (value, next int, err error) {
	for i := from; i < len(b); i++ {
		c := b[i]
		switch {
		case i-from > maxHeader: // whatever follows, so that how the bytes arrive makes no difference
			return 0, 0, wrong
		case c >= '0' && c <= '9' && value <= math.MaxInt32:
			value = value*10 + int(c-'0')
		case c == '-' && i == from:
		case c == '\r' && i > from && b[i-1] != '-':
			if i+1 == len(b) {
				return 0, 0, nil
			}
			if b[i+1] != '\n' {
				return 0, 0, wrong
			}
			if b[from] == '-' {
				value = -value
			}
			return value, i + 2, nil
		default:
			return 0, 0, wrong
		}
	}
	return 0, 0, nil
}

// inline is command for one that is typed as a line of text.
func inline(b []byte, args [][]byte) (n int, _ [][]byte, err error) {
	if b[0] == '$' { // redcon has a format of its own for these
		return 0, args, protocolError("expected '*', got '$'")
	}
	n = bytes.IndexByte(b[:min(len(b), maxInline)], '\n') + 1
	if n == 0 {
		if len(b) >= maxInline {
			return 0, args, protocolError("too big inline request: over " + strconv.Itoa(maxInline) + " bytes without a line's end")
		}
		return 0, args, nil
	}
	complete, args, _, rest, err := redcon.ReadNextCommand(b[:n], args)
	if err != nil || !complete || len(rest) > 0 {
		return 0, args, protocolError("unbalanced quotes in request")
	}
	return n, args, nil
}
