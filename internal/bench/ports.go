package bench

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports that nodes of a group get, up to endPort. They are below those that systems give to whoever asks for any, which
// outgoing connections do: one of these could have the port of a killed node when that is to start again. They are not 20000
// or more, where the chaos test's nodes are.
const firstPort, endPort = 18_000, 20_000

// freeAddrs returns n addresses of the loopback interface at which nothing listens: a node's peers must know where it will listen, and who
// starts again listens where it did.
func freeAddrs(n int) (addrs []string, err error) {
	// In any order: another bench may look for ports at the same time.
	for _, k := range rand.Perm(endPort - firstPort) {
		if len(addrs) == n {
			return addrs, nil
		}
		l, lerr := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+k))
		if lerr != nil {
			err = lerr
			continue
		}
		defer func() { _ = l.Close() }() // it was only asked for its number
		addrs = append(addrs, l.Addr().String())
	}
	return nil, fmt.Errorf("find %d free ports from %d to %d for nodes: %w", n, firstPort, endPort-1, err)
}
