// Package demo is weir demo: it opens a node in this process, deploys a SQL file, streams page views into it, and shows
// the live counts beside the committed ones while the dataflow is crashed.
//
// The generator knows how many views it has sent of each page, so at the end the demo can say what was lost and what was
// counted twice: nothing.
package demo
