package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// addTuning defines the settings that only tests need: they make rare work frequent, and record which work the server is
// in. They are not shown, but are settings like all others.
func addTuning(f *pflag.FlagSet, s *serverSettings) {
	t := &s.tuning
	f.StringVar(&s.phaseFile, "phase-file", "", "where to record the phases of work under way")
	f.StringVar(&s.faultFile, "fault-file", "", "where a test says how the clock is wrong; needs --allow-fault-injection")
	f.BoolVar(&s.faultDisk, "fault-disk", false, "let fault-file say too how the disk is wrong, which is another file system to Weir: for new data directories, and for good")
	f.IntVar(&t.Merge.Layers, "merge-layers", 0, "committed layers of a table on a shard before they are folded into its store")
	f.Var((*byteSize)(&t.Merge.Bytes), "merge-bytes", "bytes of committed layers before they are folded")
	f.DurationVar(&t.Merge.Age, "merge-age", 0, "age of committed layers before they are folded")
	f.DurationVar(&t.Merge.Every, "merge-every", 0, "how often layers are looked at")
	f.DurationVar(&t.RetentionEvery, "retention-every", 0, "how often streams are looked at for rows to drop")
	f.Var((*byteSize)(&t.SnapshotBytes), "snapshot-bytes", "bytes of commands between two snapshots of a log")
	f.Var((*byteSize)(&t.TrailingBytes), "trailing-bytes", "bytes of commands that stay behind a snapshot")
	f.Var((*byteSize)(&t.SegmentBytes), "segment-bytes", "size of the log's segment files")
	f.DurationVar(&t.QueryTime, "query-time", 0, "bound of the reading of one query")
	f.DurationVar(&t.ElectionTimeout, "election-timeout", 0, "how long a log's members wait for their leader")
	f.DurationVar(&t.RepairAfter, "repair-after", 0, "how long a node is silent before others vote in its place")
	f.Var((*addrMap)(&t.PeerMap), "peer-map", "ADDR=INSTEAD,…: where to dial other nodes, through a proxy that they do not know of")
	for _, name := range []string{
		"phase-file", "fault-file", "fault-disk", "merge-layers", "merge-bytes", "merge-age", "merge-every", "retention-every", "snapshot-bytes", "trailing-bytes", "segment-bytes", "election-timeout", "query-time", "repair-after", "peer-map",
	} {
		f.Lookup(name).Hidden = true
	}
}

// addrMap is a flag of addresses and what stands for them. It prints in order, unlike pflag's own maps.
type addrMap map[string]string

// String implements pflag.Value.
func (m *addrMap) String() string {
	var parts []string
	for _, addr := range slices.Sorted(maps.Keys(*m)) {
		parts = append(parts, addr+"="+(*m)[addr])
	}
	return strings.Join(parts, ",")
}

// Set implements pflag.Value.
func (m *addrMap) Set(list string) error {
	out := make(addrMap)
	for part := range strings.SplitSeq(list, ",") {
		addr, instead, ok := strings.Cut(part, "=")
		switch {
		case part == "":
		case !ok || addr == "" || instead == "":
			return fmt.Errorf("%q is not ADDR=INSTEAD", part)
		default:
			out[addr] = instead
		}
	}
	*m = out
	return nil
}

// Type implements pflag.Value.
func (m *addrMap) Type() string { return "addresses" }
