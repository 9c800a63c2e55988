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

// command takes the first command off b. n is how many bytes it takes; 0 when it has not arrived whole. args is empty for a
// command without words, which has no answer. args has the words, in memory of b or of its own.
func command(b []byte, buf [][]byte) (n int, args [][]byte, err error) {
	n, err = frame(b)
	if err != nil || n == 0 {
		return 0, nil, err
	}
	if b[0] == '*' && (b[1] == '0' || b[1] == '-') {
		return n, buf[:0], nil // redcon takes *-1 for an error, Redis ignores it
	}
	complete, args, kind, rest, err := redcon.ReadNextCommand(b[:n], buf)
	switch {
	case err != nil && kind == redcon.Telnet:
		return 0, nil, protocolError("unbalanced quotes in request")
	case err != nil || !complete || len(rest) > 0:
		return 0, nil, protocolError("invalid request") // frame has seen to what leads here
	}
	return n, args, nil
}

// frame returns the length of the first command in b, 0 when b does not hold the whole of it, and checks every length that
// it names.
func frame(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	if b[0] != '*' {
		return inlineFrame(b)
	}
	count, at, err := header(b, 1, "invalid multibulk length")
	if err != nil || at == 0 {
		return 0, err
	}
	if count > maxArgs {
		return 0, protocolError(fmt.Sprintf("invalid multibulk length: %d words are over the limit of %d", count, maxArgs))
	}
	for range count {
		if at == len(b) {
			return 0, nil
		}
		if b[at] != '$' {
			return 0, protocolError(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, start, err := header(b, at+1, "invalid bulk length")
		switch {
		case err != nil || start == 0:
			return 0, err
		case size < 0:
			return 0, protocolError("invalid bulk length")
		case size > maxCommand || start+size+2 > maxCommand:
			return 0, protocolError(fmt.Sprintf("invalid bulk length: a command is over the limit of %d bytes", maxCommand))
		case len(b) < start+size+2:
			return 0, nil
		}
		at = start + size
		if b[at] != '\r' || b[at+1] != '\n' {
			return 0, protocolError("a bulk string does not end where its length says")
		}
		at += 2
	}
	return at, nil
}

// header reads the number that begins at from and ends with a line's end, and returns where the next line begins: 0 when
// the line is not whole. Only decimal digits are a number, after a minus perhaps.
func header(b []byte, from int, wrong protocolError) (value, next int, err error) {
	for i := from; i < len(b); i++ {
		c := b[i]
		switch {
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
	if len(b)-from > maxHeader {
		return 0, 0, wrong
	}
	return 0, 0, nil
}

// inlineFrame is frame for a command that is typed as a line.
func inlineFrame(b []byte) (int, error) {
	if b[0] == '$' { // redcon has a format of its own for these
		return 0, protocolError("expected '*', got '$'")
	}
	i := bytes.IndexByte(b[:min(len(b), maxInline)], '\n')
	switch {
	case i >= 0:
		return i + 1, nil
	case len(b) >= maxInline:
		return 0, protocolError("too big inline request: over " + strconv.Itoa(maxInline) + " bytes without a line's end")
	}
	return 0, nil
}
