package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// startup is how far the start of a node has come, for people who wait for it.
type startup struct {
	node string
	mu   struct {
		sync.Mutex
		state waiting
	}
}

// waiting is what a node waits for.
type waiting struct {
	Doing string            // what it does; "" = it opens its data directory
	Logs  map[string]string // what each log lacks that is not up to date
	Nodes []answer          // who has answered, when it asked last
	Hint  string            // what an operator can do
}

// answer is what was heard at an address of the group.
type answer struct {
	Addr, Node string // Node is "" when it is not known
	Group      string // of a node of another group
	Problem    string // "" = it answers
}

// notReadyRetry is when a client should ask a node again that starts.
const notReadyRetry = time.Second

func newStartup(node string) *startup {
	s := &startup{node: node}
	s.mu.state.Logs = make(map[string]string)
	return s
}

// doing says what the node does from now on.
func (s *startup) doing(what, hint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.state.Doing, s.mu.state.Hint = what, hint
}

// lacks says what a log lacks; "" = it is up to date.
func (s *startup) lacks(log, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == "" {
		delete(s.mu.state.Logs, log)
		return
	}
	s.mu.state.Logs[log] = what
}

// heard says who answers.
func (s *startup) heard(nodes []answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.state.Nodes = nodes
}

// answers returns who answers.
func (s *startup) answers() []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state.Nodes
}

// err is what clients are told: NODE_NOT_READY.
func (s *startup) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state.err(s.node, "does not serve yet")
}

// err is NODE_NOT_READY: what the node does not do, and what it waits for.
func (w *waiting) err(node, what string) error {
	doing := w.Doing
	if doing == "" {
		doing = "it opens its data directory"
	}
	parts := append([]string{doing}, w.logs()...)
	for _, a := range w.Nodes {
		parts = append(parts, a.String())
	}
	e := dataflow.Errorf(dataflow.ReasonNodeNotReady, "node %s %s: %s", node, what, strings.Join(parts, "; ")).
		WithRetry(notReadyRetry).WithMeta("node", node).WithMeta("doing", doing)
	// The same in parts, for who shows it: log-NAME and node-NUMBER.
	for log, lacks := range w.Logs {
		e = e.WithMeta("log-"+log, lacks)
	}
	for i, a := range w.Nodes {
		e = e.WithMeta(fmt.Sprintf("node-%d", i+1), a.String())
	}
	if w.Hint != "" {
		return e.WithHint("%s", w.Hint)
	}
	return e
}

// logs says what the logs lack, those that lack the same together.
func (w *waiting) logs() (out []string) {
	by := make(map[string][]string)
	for log, what := range w.Logs {
		by[what] = append(by[what], log)
	}
	for what, logs := range by {
		slices.Sort(logs)
		out = append(out, strings.Join(logs, ", ")+": "+what)
	}
	slices.Sort(out)
	return out
}

func (a answer) String() string {
	at := a.Addr
	if a.Node != "" {
		at = fmt.Sprintf("node %s (%s)", a.Node, a.Addr)
	}
	switch {
	case a.Group != "":
		return fmt.Sprintf("%s is of another group, %s", at, a.Group)
	case a.Problem != "":
		return fmt.Sprintf("%s does not answer: %s", at, a.Problem)
	}
	return at + " answers"
}

func compareAnswers(a, b answer) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Addr, b.Addr))
}
