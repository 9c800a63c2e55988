package gateway

import (
	"strings"
	"testing"
)

// TestLookingForSurrogatesCostsTheSameHoweverDeepABodyNests counts allocations: a look at every level would copy what the
// level holds.
func TestLookingForSurrogatesCostsTheSameHoweverDeepABodyNests(t *testing.T) {
	for _, depth := range []int{1, 1000} {
		body := []byte(strings.Repeat("[", depth) + `"\ud83d\ude00` + strings.Repeat("x", 1<<14) + `"` + strings.Repeat("]", depth))
		allocs := testing.AllocsPerRun(1, func() {
			if err := refuseSurrogates(body); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 0 {
			t.Errorf("%v allocations for a body of depth %d", allocs, depth)
		}
	}
}
