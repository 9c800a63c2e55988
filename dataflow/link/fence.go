package link

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// fence decides which incarnations of a pipeline may run and may connect on one node. It is pure; the hub's lock guards it.
type fence struct {
	pipelines map[dataflow.PipelineUID]*history
}

// history is what a node knows of a pipeline's incarnations.
type history struct {
	newest  dataflow.Incarnation // that was started here or that a peer has spoken of
	running dataflow.Incarnation // 0 = none
	ended   dataflow.Incarnation // the newest that has ended here
}

func (f *fence) of(uid dataflow.PipelineUID) *history {
	h := f.pipelines[uid]
	if h == nil {
		h = &history{}
		f.pipelines[uid] = h
	}
	return h
}

// start asks whether an incarnation may run. overtaken, if not 0, is an older one that is to end.
func (f *fence) start(uid dataflow.PipelineUID, inc dataflow.Incarnation) (ok bool, overtaken dataflow.Incarnation) {
	h := f.of(uid)
	if inc < h.newest || inc <= h.ended || inc == h.running {
		return false, 0
	}
	overtaken = h.running
	h.newest, h.running = inc, inc
	return true, overtaken
}

// end says that an incarnation has ended.
func (f *fence) end(uid dataflow.PipelineUID, inc dataflow.Incarnation) {
	h := f.of(uid)
	h.ended = max(h.ended, inc)
	if h.running == inc {
		h.running = 0
	}
}

// verdict is what becomes of a peer that wants to connect.
type verdict uint8

const (
	accept verdict = iota // the incarnation runs here
	wait                  // it has not been started here yet
	stale                 // it is too old
)

func (v verdict) String() string { return [...]string{"accept", "wait", "stale"}[v] }

// hello judges a peer of an incarnation. overtaken, if not 0, is an older one that is to end: a newer exists.
func (f *fence) hello(uid dataflow.PipelineUID, inc dataflow.Incarnation) (v verdict, overtaken dataflow.Incarnation) {
	h := f.of(uid)
	switch {
	case inc < h.newest || inc <= h.ended:
		return stale, 0
	case inc == h.running:
		return accept, 0
	}
	overtaken = h.running
	h.newest = inc
	return wait, overtaken
}

func (f *fence) newest(uid dataflow.PipelineUID) dataflow.Incarnation {
	h := f.of(uid)
	return max(h.newest, h.ended)
}

func (h *history) String() string {
	return fmt.Sprintf("newest %d, running %d, ended %d", h.newest, h.running, h.ended)
}
