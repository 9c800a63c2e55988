package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// notReady returns what a node says that does not serve yet; nil when err is something else.
func notReady(err error) *dataflow.Error {
	var e *dataflow.Error
	if errors.As(err, &e) && e.Reason == dataflow.ReasonNodeNotReady {
		return e
	}
	return nil
}

// waiting is what a node knows that does not serve yet.
type waiting struct {
	Node  string            `json:"node"`
	Ready bool              `json:"ready"`
	Doing string            `json:"doing"`
	Logs  map[string]string `json:"logs"`
	Nodes []string          `json:"nodes"`
	Hint  string            `json:"hint,omitempty"`
}

func waitingOf(e *dataflow.Error) waiting {
	w := waiting{Node: e.Metadata["node"], Doing: e.Metadata["doing"], Logs: make(map[string]string), Nodes: []string{}, Hint: e.Hint}
	for k, v := range e.Metadata {
		if log, ok := strings.CutPrefix(k, "log-"); ok {
			w.Logs[log] = v
		}
	}
	for i := 1; e.Metadata[fmt.Sprintf("node-%d", i)] != ""; i++ {
		w.Nodes = append(w.Nodes, e.Metadata[fmt.Sprintf("node-%d", i)])
	}
	return w
}

// printWaiting shows what a node knows that does not serve yet. It returns the error as one that was reported.
func (c *cli) printWaiting(err error) error {
	w := waitingOf(notReady(err))
	said := errors.Join(err, errReported)
	if c.json() {
		line, err := json.Marshal(w)
		return errors.Join(said, err, c.printLine(line))
	}
	out := fmt.Sprintf("node %s does not serve yet: %s\n", w.Node, w.Doing)
	for _, log := range slices.Sorted(maps.Keys(w.Logs)) {
		out += fmt.Sprintf("  %s: %s\n", log, w.Logs[log])
	}
	for _, n := range w.Nodes {
		out += fmt.Sprintf("  %s\n", n)
	}
	if w.Hint != "" {
		out += w.Hint + "\n"
	}
	_, err = fmt.Fprint(c.stdout, out)
	return errors.Join(said, err)
}
