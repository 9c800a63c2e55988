package bench

import (
	"net"
	"slices"
	"strconv"
	"testing"
)

func TestNodesGetFreePortsThatNoOutgoingConnectionTakes(t *testing.T) {
	var seen []string
	for range 20 {
		addrs, err := freeAddrs(6)
		if err != nil || len(addrs) != 6 {
			t.Fatalf("%v, %v", addrs, err)
		}
		for _, a := range addrs {
			_, text, err := net.SplitHostPort(a)
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(text)
			if err != nil || port < 18_000 || port > 19_999 {
				t.Errorf("%s is not from 18000 to 19999: %v", a, err)
			}
			if slices.Contains(seen, a) {
				t.Errorf("%s is taken, and found free", a)
			}
			l, err := net.Listen("tcp", a)
			if err != nil {
				t.Fatalf("%s is not free: %v", a, err)
			}
			defer func() { _ = l.Close() }() // until the end: the next ones must be others
			seen = append(seen, a)
		}
	}
}
