package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// generators make rows from a seed. They may only grow: answers are recorded over what they make.
var generators = map[string]func(t *testing.T, n int, seed uint64) []string{
	"opticks": opticks,
	"orders":  orders,
	"numbers": numbers,
	"clicks":  clicks,
}

// opticks returns the lines of Newton's Opticks, which comes with every Go installation; n and seed mean nothing.
func opticks(t *testing.T, _ int, _ uint64) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src/testdata/Isaac.Newton-Opticks.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		rows = append(rows, object(t, "line", strings.TrimRight(line, "\r")))
	}
	return rows
}

// object writes a row; nil is NULL.
func object(t *testing.T, pairs ...any) string {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		v, err := json.Marshal(pairs[i+1])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, ",%q:%s", pairs[i], v)
	}
	return "{" + b.String()[1:] + "}"
}

// pick returns one of the choices, nil among them.
func pick(r *rand.Rand, choices ...any) any { return choices[r.IntN(len(choices))] }

// orders makes orders with every type, NULLs in every column that takes them, and texts beyond ASCII.
func orders(t *testing.T, n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	start := time.Date(2026, 2, 25, 0, 0, 0, 0, time.UTC)
	rows := make([]string, n)
	for i := range rows {
		var at, amount, price any
		if r.IntN(20) > 0 {
			at = start.Add(time.Duration(r.IntN(6*24*3600*1000)) * time.Millisecond).Format(time.RFC3339Nano)
		}
		if r.IntN(15) > 0 {
			amount = int64(r.IntN(2000)) - 200
		}
		if r.IntN(15) > 0 {
			price = float64(r.IntN(100000)) / 100
		}
		rows[i] = object(t,
			"id", i+1,
			"country", pick(r, "NZ", "NZ", "NZ", "AU", "AU", "DE", "ÅX", "日本", "", nil),
			"customer", pick(r, "ann", "bob", "çelik", "Δelta", "eve", fmt.Sprintf("c%d", r.IntN(40)), fmt.Sprintf("c%d", r.IntN(40)), nil),
			"status", pick(r, "new", "paid", "paid", "shipped", "cancelled", nil),
			"amount", amount, "price", price,
			"express", pick(r, true, false, false, nil),
			"at", at)
	}
	return rows
}

// numbers makes numbers of every size: small keys, values up to the limits of their types.
func numbers(t *testing.T, n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 2))
	rows := make([]string, n)
	for i := range rows {
		var big any = int64(r.Uint64())
		switch r.IntN(10) {
		case 0:
			big = nil
		case 1:
			big = int64(9223372036854775807)
		case 2:
			big = int64(-9223372036854775808)
		}
		var d any = (r.Float64() - 0.5) * 1e6
		switch r.IntN(12) {
		case 0:
			d = nil
		case 1:
			d = float64(r.IntN(5))
		case 2:
			d = r.Float64() * 1e-300
		}
		rows[i] = object(t, "k", pick(r, 1, 2, 3, 4, 5, 6, 7, nil), "i", int64(r.IntN(1000))-500, "big", big, "d", d,
			"s", pick(r, "1.5", "2.50", "-0.001", "12345678901234567890.123456789", "3", nil))
	}
	return rows
}

// clicks makes clicks of forty users on ten pages, some far more often than others.
func clicks(t *testing.T, n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 3))
	rows := make([]string, n)
	for i := range rows {
		var user any = min(r.IntN(40), r.IntN(40))
		if r.IntN(30) == 0 {
			user = nil
		}
		var ms any = r.IntN(5000)
		if r.IntN(10) == 0 {
			ms = nil
		}
		rows[i] = object(t, "user_id", user, "page", pick(r, "/", "/", "/", "/a", "/a", "/b", "/c/d", "/é", "/z", nil), "ms", ms)
	}
	return rows
}
