package parallel

import (
	"flag"
	"runtime"
	"testing"
)

func TestTheUsersNumberWins(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 4},
		{[]string{"-test.v"}, 4},
		{[]string{"-test.parallel=1"}, 1},
		{[]string{"-test.parallel", "9", "-test.v"}, 9},
	} {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		got := flags.Int(atOnce, runtime.GOMAXPROCS(0), "")
		flags.Bool("test.v", false, "")
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		set(flags, 4)
		if *got != c.want {
			t.Errorf("%q: %d tests at once, want %d", c.args, *got, c.want)
		}
	}
}
