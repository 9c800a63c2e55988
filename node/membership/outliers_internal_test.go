package membership

import (
	"fmt"
	"strings"
	"testing"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestOnlyAMajorityCondemns draws what each member holds as a letter; - has not answered.
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
		var replicas []*weirv1.Replica
		for i, h := range c.held {
			r := &weirv1.Replica{Node: fmt.Sprint(i + 1), Digest: uint64(h), Keys: 7}
			if h == '-' {
				r.Problem, r.Digest = "it does not answer", 0
			}
			replicas = append(replicas, r)
		}
		var got []string
		for _, r := range outliers(replicas) {
			got = append(got, r.Node)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v are condemned, want %q", c.held, got, c.want)
		}
	}
}
