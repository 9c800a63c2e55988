package bench_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/internal/bench"
	"github.com/weirdb/weir/internal/testkit/parallel"
)

// nodeArgument makes the test's own program a node, as weir bench node is.
const nodeArgument = "bench-node"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeArgument {
		var f bench.NodeFlags
		set := flag.NewFlagSet(nodeArgument, flag.ExitOnError)
		set.StringVar(&f.DataDir, "data-dir", "", "")
		set.StringVar(&f.GRPCAddr, "grpc-addr", "", "")
		set.StringVar(&f.NodeID, "node-id", "", "")
		set.StringVar(&f.PeerAddr, "peer-addr", "", "")
		set.StringVar(&f.Join, "join", "", "")
		set.Int64Var(&f.Memory, "memory", 0, "")
		set.StringVar(&f.Profile, "profile", "", "")
		set.StringVar(&f.ProfileName, "profile-name", "", "")
		err := set.Parse(os.Args[2:])
		if err == nil {
			err = bench.RunNode(context.Background(), f, os.Stdin, os.Stdout, os.Stderr)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	parallel.AtOnce(2) // each starts nodes of its own and loads them
	goleak.VerifyTestMain(m)
}
