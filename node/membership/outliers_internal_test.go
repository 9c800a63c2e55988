package membership

import (
	"fmt"
	"strings"
	"testing"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// drawn are the replicas of a drawing: what each member holds as a letter; - has not answered.
func drawn(held string) (replicas []*weirv1.Replica) {
	for i, h := range held {
		r := &weirv1.Replica{Node: fmt.Sprint(i + 1), Digest: uint64(h), Keys: 7}
		if h == '-' {
			r.Reason, r.Digest = "NODE_UNREACHABLE", 0
		}
		replicas = append(replicas, r)
	}
	return replicas
}

func TestOnlyAMajorityCondemns(t *testing.T) {
	for _, c := range []struct{ held, want string }{
		{"AAA", ""},
		{"AAB", "3"},
		{"BAA", "1"},
		{"ABC", ""},
		{"AB-", ""},
		{"AA-", ""},
		{"AAAB-", "4"},
		{"AAB--", ""},
		{"AABB", ""},
		{"AAABC", "4 5"},
		{"AB", ""},
	} {
		var got []string
		for _, r := range outliers(drawn(c.held)) {
			got = append(got, r.Node)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v are condemned, want %q", c.held, got, c.want)
		}
	}
}

func TestWhoDoesNotAnswerMakesNothingUnequal(t *testing.T) {
	for _, c := range []struct {
		held            string
		equal, complete bool
	}{
		{"AAA", true, true},
		{"AA-", true, false},
		{"-AA", true, false},
		{"A--", true, false},
		{"AB-", false, false},
		{"AAB", false, true},
		{"A", true, true},
		{"---", false, false}, // nobody has said anything
	} {
		if equal, complete := compare(drawn(c.held)); equal != c.equal || complete != c.complete {
			t.Errorf("%s: equal %v, complete %v", c.held, equal, complete)
		}
	}
}
