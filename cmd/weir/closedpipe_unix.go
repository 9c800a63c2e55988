//go:build unix

package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readerPoll is how long the system is asked at a time whether somebody reads, in ms: the end of a verb waits so long at most.
const readerPoll = 100

// waitReaderGone returns true when the other end of a pipe is closed, and false when ctx has ended or it cannot be known.
func waitReaderGone(ctx context.Context, f *os.File) bool {
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}} // no events: errors are always reported
		n, err := unix.Poll(fds, readerPoll)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		case n > 0:
			return fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
	return false
}
