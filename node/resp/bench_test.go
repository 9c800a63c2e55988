package resp_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/weirdb/weir/node/resp"
)

// BenchmarkGET is a round trip over loopback, client included, of one and of 16 commands; per batch. The rows are the fake's.
func BenchmarkGET(b *testing.B) {
	for _, pipelined := range []int{1, 16} {
		b.Run(fmt.Sprintf("pipelined=%d", pipelined), func(b *testing.B) {
			_, addr := serve(b, resp.Config{Backend: newFake()})
			c := dial(b, addr)
			batch := []byte(strings.Repeat(request("GET", "wc.counts:whale"), pipelined))
			if _, err := io.WriteString(c, request("GET", "wc.counts:whale")+request("QUIT")); err != nil {
				b.Fatal(err)
			}
			one, err := io.ReadAll(c)
			if err != nil {
				b.Fatal(err)
			}
			answer := make([]byte, pipelined*(len(one)-len("+OK\r\n")))
			c = dial(b, addr)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(batch); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
