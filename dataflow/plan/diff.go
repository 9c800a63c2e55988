package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Fingerprint returns a short text that is equal for equal plans: deploying a file whose plan has the fingerprint of the
// running one is the same program. Comments, layout and names of subqueries do not count, nor do options: a pipeline can
// change them, so they are compared with those that it has.
func Fingerprint(p *Plan) string {
	sum := sha256.Sum256([]byte(explainProgram(p)))
	return hex.EncodeToString(sum[:16])
}

// Diff says how new differs from old, a sentence per stream and view. It is empty for the same program.
func Diff(old, new *Plan) []string {
	out := diffStreams(old, new)
	for _, s := range new.Tables() {
		was, ok := old.Table(s.Name)
		if !ok {
			out = append(out, fmt.Sprintf("materialized view %s is new", s.Name))
			continue
		}
		out = append(out, diffStage(old, new, was, s)...)
	}
	for _, s := range old.Tables() {
		if _, ok := new.Table(s.Name); !ok {
			out = append(out, fmt.Sprintf("materialized view %s is gone", s.Name))
		}
	}
	if len(out) == 0 && explainProgram(old) != explainProgram(new) {
		out = append(out, "the order of the views differs")
	}
	return out
}

func diffStreams(old, new *Plan) []string {
	texts := func(list []Stream) map[string]string {
		m := make(map[string]string)
		for _, s := range list {
			m[s.Name] = explainStream(s)
		}
		return m
	}
	was, is := texts(old.Declared), texts(new.Declared)
	var out []string
	for _, s := range new.Declared {
		switch text, ok := was[s.Name]; {
		case !ok:
			out = append(out, fmt.Sprintf("CREATE STREAM %s is new", s.Name))
		case text != is[s.Name]:
			out = append(out, fmt.Sprintf("stream %s: is %s, was %s", s.Name, is[s.Name], text))
		}
	}
	for _, s := range old.Declared {
		if _, ok := is[s.Name]; !ok {
			out = append(out, fmt.Sprintf("CREATE STREAM %s is gone", s.Name))
		}
	}
	return out
}

// diffStage compares two versions of a table with all that leads to it.
func diffStage(old, new *Plan, was, is *Stage) []string {
	name := is.Name
	if a, b := was.Key.String(), is.Key.String(); a != b {
		return []string{fmt.Sprintf("materialized view %s: its key is %s, was %s", name, b, a)}
	}
	var out []string
	for _, c := range is.Schema {
		i := was.Schema.Index(c.Name)
		switch {
		case i < 0:
			out = append(out, fmt.Sprintf("materialized view %s: column %s %s is new", name, c.Name, c.Type))
		case was.Schema[i].Type != c.Type:
			out = append(out, fmt.Sprintf("materialized view %s: column %s is %s, was %s", name, c.Name, c.Type, was.Schema[i].Type))
		}
	}
	for _, c := range was.Schema {
		if is.Schema.Index(c.Name) < 0 {
			out = append(out, fmt.Sprintf("materialized view %s: column %s is gone", name, c.Name))
		}
	}
	if len(out) > 0 {
		return out
	}
	if a, b := describe(old, was), describe(new, is); a != b {
		x, y := firstDifference(a, b)
		return []string{fmt.Sprintf("materialized view %s: is %q, was %q", name, y, x)}
	}
	return nil
}

// describe prints a stage and the internal stages that it reads; tables that it reads are named only, since they have a
// comparison of their own.
func describe(p *Plan, s *Stage) string {
	var b strings.Builder
	var visit func(s *Stage)
	visit = func(s *Stage) {
		copied := *s
		copied.ID = 0
		copied.Inputs = nil
		for _, in := range s.Inputs {
			if in.FromStage && p.Stages[in.From].Name == "" {
				visit(p.Stages[in.From])
			}
		}
		explainStage(&b, p, &copied)
		for _, in := range s.Inputs {
			if !in.FromStage {
				explainInput(&b, p, in)
				continue
			}
			chain := *in
			chain.FromStage, chain.Stream = false, stageName(p.Stages[in.From])
			explainInput(&b, p, &chain)
		}
		for _, a := range s.Aggs {
			fmt.Fprintf(&b, "  folds %s\n", explainAgg(s, a))
		}
	}
	visit(s)
	return b.String()
}

// firstDifference returns the first lines in which two texts differ.
func firstDifference(a, b string) (string, string) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := 0; i < len(as) && i < len(bs); i++ {
		if as[i] != bs[i] {
			return strings.TrimSpace(as[i]), strings.TrimSpace(bs[i])
		}
	}
	if len(as) > len(bs) {
		return strings.TrimSpace(as[len(bs)]), ""
	}
	return "", strings.TrimSpace(bs[len(as)])
}
