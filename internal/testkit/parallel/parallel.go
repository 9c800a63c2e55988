// Package parallel says how many tests of a package run beside each other, where that is not the number of processors: tests of
// whole nodes and groups wait most of the time, for elections, timers and disks.
//
//	func TestMain(m *testing.M) {
//		parallel.AtOnce(4)
//		goleak.VerifyTestMain(m)
//	}
//
// Tests that call t.Parallel have their directories, ports and clocks for themselves. One that changes or measures what the whole
// process has (the environment, GOMAXPROCS, its memory, its goroutines) does not call it, and says why: it runs before all that do.
package parallel

import (
	"flag"
	"strconv"
)

// atOnce is the flag of go test, as the test's program knows it.
const atOnce = "test.parallel"

// AtOnce has up to n tests run at once, unless go test was called with -parallel. A TestMain calls it before it runs the tests.
func AtOnce(n int) {
	flag.Parse()
	set(flag.CommandLine, n)
}

func set(flags *flag.FlagSet, n int) {
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == atOnce })
	if given {
		return
	}
	if err := flags.Set(atOnce, strconv.Itoa(n)); err != nil {
		panic(err) // it is called by something that is not a test
	}
}
