package main

import (
	"context"
	"fmt"
	"strings"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// explain prints how and where a query would be answered.
func (c *cli) explain(ctx context.Context, w *weir.Client, sql string, o weir.ReadOptions) error {
	x, err := w.Explain(ctx, sql, o)
	if err != nil {
		return err
	}
	if c.json() {
		out := []byte(`{"plan":[`)
		for i, line := range x.Plan {
			if i > 0 {
				out = append(out, ',')
			}
			out = wire.AppendStringJSON(out, line)
		}
		out = append(out, `],"explanation":`...)
		if x.Where == nil {
			out = append(out, "null"...)
		} else {
			out = wire.AppendJSON(out, x.Where)
		}
		return c.printLine(append(wire.AppendCutJSON(append(out, `,"cut":`...), x.Cut), '}'))
	}
	var b strings.Builder
	for _, line := range x.Plan {
		b.WriteString(line + "\n")
	}
	if x.Where != nil {
		describeWhere(&b, x.Where, x.Cut)
	}
	_, err = c.stdout.Write([]byte(b.String()))
	return err
}

// describeWhere writes where an answer comes from. Shards that are read alike share a line.
func describeWhere(b *strings.Builder, x *weirv1.Explanation, cut *weirv1.Cut) {
	isolation := "read committed"
	if x.GetIsolation() == weirv1.Read_READ_UNCOMMITTED {
		isolation = "read uncommitted"
	}
	fmt.Fprintf(b, "\nanswered by  node %s (%s of the meta log), %s\n", x.GetNode(), cut.GetRole(), isolation)
	fmt.Fprintf(b, "why          %s\n", x.GetWhy())
	fmt.Fprintf(b, "cut          %s\n", cutLine(cut))
	for from := 0; from < len(x.GetShards()); {
		first, to := x.GetShards()[from], from+1
		for to < len(x.GetShards()) && alike(first, x.GetShards()[to]) {
			to++
		}
		name := fmt.Sprintf("shard %d", first.GetShard())
		if last := x.GetShards()[to-1]; last != first {
			name = fmt.Sprintf("shards %d-%d", first.GetShard(), last.GetShard())
		}
		fmt.Fprintf(b, "%-12s node %s: %s\n", name, first.GetNode(), first.GetWhy())
		from = to
	}
}

func alike(a, b *weirv1.ShardRead) bool {
	return a.GetNode() == b.GetNode() && a.GetSource() == b.GetSource() && a.GetWhy() == b.GetWhy()
}
