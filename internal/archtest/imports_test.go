package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirdb/weir/"

// pure lists the packages below dataflow that have no I/O, clock or goroutine: see TestThePureHaveNoClockAndNoGoroutine.
var pure = []string{"dataflow/batch", "dataflow/key", "dataflow/jsonb", "dataflow/expr", "dataflow/agg", "dataflow/sql", "dataflow/plan", "dataflow/operator", "dataflow/coordinator"}

// open lists the packages that everybody but the pure may import.
var open = []string{"internal/vfs", "internal/phase", "internal/pause", "internal/pace"}

// law says, per room, which rooms of Weir its packages may import. The longest matching prefix counts. The root
// vocabulary (dataflow) is open to everybody.
var law = map[string][]string{
	"dataflow":             {}, // the root package, and any below that has no rule of its own
	"dataflow/batch":       {},
	"dataflow/key":         {"dataflow/batch"},
	"dataflow/jsonb":       {},
	"dataflow/expr":        {"dataflow/batch", "dataflow/jsonb"},
	"dataflow/agg":         {"dataflow/batch", "dataflow/key"},
	"dataflow/sql":         {},
	"dataflow/plan":        {"dataflow/batch", "dataflow/key", "dataflow/expr", "dataflow/agg", "dataflow/sql"},
	"dataflow/operator":    {"dataflow/batch", "dataflow/key", "dataflow/expr", "dataflow/agg", "dataflow/plan"},
	"dataflow/coordinator": {},
	"dataflow/exchange":    {"dataflow/batch"},
	"dataflow/link":        {"dataflow/exchange"},
	"dataflow/state":       {},
	"dataflow/checkpoint":  {"dataflow/state"},
	"dataflow/task":        append([]string{"dataflow/exchange", "dataflow/checkpoint", "dataflow/state"}, pure...),
	"statequery":           pure,
	"raftlog":              {"raftlog/frame", "raftlog/transport"},
	"raftlog/frame":        {},
	"raftlog/logstore":     {"raftlog/frame"},
	"raftlog/transport":    {"internal/peernet"},
	"raftlog/meta":         {"raftlog", "proto/weir/meta"},
	"raftlog/shard":        {"raftlog"},
	"sinks":                pure,
	"proto":                {"proto"},
	"clients":              {"proto/weir/v1", "internal/codec", "internal/wire", "dataflow/batch", "dataflow/key", "dataflow/expr"},
	"node":                 {"node", "statequery", "raftlog", "sinks", "dataflow", "proto/weir/v1", "proto/weir/peer/v1", "internal/peernet", "internal/pace", "internal/inject"},
	"node/api":             {"node/api", "proto/weir/v1", "internal/codec", "internal/wire", "dataflow/batch", "dataflow/expr"},
	"node/catalog":         {"statequery", "raftlog/meta", "dataflow/sql", "dataflow/plan"},
	"node/fleet":           {"node/leader", "node/worker", "dataflow/coordinator", "raftlog/meta", "proto/weir/meta/v1", "proto/weir/peer/v1"},
	"node/founding":        {},
	"node/rebuild":         {"proto/weir/peer/v1", "raftlog/shard"},
	"node/membership":      {"node/founding", "raftlog/meta", "proto/weir/v1", "proto/weir/peer/v1", "internal/wire"},
	"node/gateway":         {"proto/weir/v1", "internal/wire"},
	"node/leader":          {"raftlog/meta", "dataflow/coordinator"},
	"node/worker":          {"node/catalog", "raftlog/meta", "raftlog/shard", "dataflow"},
	"node/peer":            {"internal/peernet", "internal/codec", "internal/wire", "proto/weir/peer", "raftlog"},
	"node/service":         {"node/api", "node/catalog", "node/fleet", "node/membership", "node/rebuild", "node/worker", "proto/weir/v1", "statequery", "raftlog/meta", "raftlog/shard", "dataflow"},
	"node/resp":            {"internal/wire", "proto/weir/v1", "dataflow/batch", "dataflow/expr"},
	"node/nodetest":        {"node", "proto/weir/v1", "internal/wire", "internal/peernet"},
	"cmd":                  {"cmd", "node", "clients", "dataflow", "proto/weir/v1", "internal/wire", "internal/bench", "internal/peernet"},
	"internal/wire":        {"proto/weir/v1", "dataflow/batch", "dataflow/expr", "dataflow/jsonb"},
	"internal/codec":       {},
	"internal/vfs":         {},
	"internal/phase":       {},
	"internal/inject":      {},
	"internal/pause":       {},
	"internal/peernet":     {},
	// The kit beside its subject.
	"internal/peernet/peernettest": {"internal/peernet"},
	"internal/testkit":             {},
	"internal":                     {"node", "statequery", "raftlog", "sinks", "dataflow", "proto", "clients", "internal"},
	"internal/pace":                {},
}

// confined says where a third-party engine may be imported, by import path prefix. docs/dependencies.md says why we have
// it. No room: in tests only.
var confined = map[string][]string{
	"github.com/cockroachdb/pebble":     {"dataflow/state", "internal/vfs"},
	"github.com/hashicorp":              {"raftlog"},
	"go.etcd.io/bbolt":                  {"raftlog"},
	"google.golang.org/grpc":            {"node", "clients", "cmd", "proto", "internal"},
	"google.golang.org/protobuf":        {"node", "clients", "cmd", "proto", "raftlog/meta", "internal/wire", "internal/codec"},
	"google.golang.org/genproto":        {"node", "proto", "internal/wire"},
	"github.com/grpc-ecosystem":         {"node/gateway", "proto"},
	"github.com/prometheus":             {"node"},
	"github.com/tidwall":                {"node/resp"},
	"github.com/spf13":                  {"cmd"},
	"github.com/knadh/koanf":            {"cmd"},
	"golang.org/x/sys":                  {"cmd"},
	"golang.org/x/term":                 {"cmd"},
	"github.com/cockroachdb/datadriven": {},
	"github.com/redis":                  {},
	"github.com/rogpeppe/go-internal":   {},
	"go.uber.org/goleak":                {},
	"pgregory.net/rapid":                {},
}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	// Without the profile of cmd/weir, which gives each package a second build with another name.
	cmd := exec.Command("go", "list", "-pgo=off", "-json=ImportPath,Doc,Imports", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		pkgs = append(pkgs, p)
	}
}

func under(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

func anyUnder(path string, rooms []string) bool {
	for _, r := range rooms {
		if under(path, r) {
			return true
		}
	}
	return false
}

// allowed returns the rooms that path may import, by the longest room that it stands in.
func allowed(path string) (rooms []string, found bool) {
	best := ""
	for room := range law {
		if under(path, room) && len(room) > len(best) {
			best = room
		}
	}
	return law[best], best != ""
}

func TestImportsFollowTheLaw(t *testing.T) {
	for _, p := range list(t) {
		rooms, ok := allowed(p.ImportPath)
		if !ok {
			t.Errorf("%s stands in no room of the house: give it a rule", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if !ours || imp == "dataflow" {
				continue
			}
			if slices.Contains(open, imp) && !anyUnder(p.ImportPath, pure) {
				continue
			}
			// A room's packages may import each other only where the law names the room.
			if !anyUnder(imp, rooms) {
				t.Errorf("%s imports %s; it may import %v", p.ImportPath, imp, rooms)
			}
		}
	}
}

func TestEnginesStayInTheirRooms(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range p.Imports {
			for engine, rooms := range confined {
				if strings.HasPrefix(imp, engine) && !anyUnder(p.ImportPath, rooms) {
					t.Errorf("%s imports %s, which belongs to %v", p.ImportPath, imp, rooms)
				}
			}
		}
	}
}

func TestTestKitsAreImportedByTestsOnly(t *testing.T) {
	kit := func(path string) bool { return under(path, "internal/testkit") || strings.HasSuffix(path, "test") }
	for _, p := range list(t) {
		for _, imp := range p.Imports {
			if imp, ours := strings.CutPrefix(imp, module); ours && kit(imp) && !kit(p.ImportPath) {
				t.Errorf("%s imports the test kit %s", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range list(t) {
		if strings.HasPrefix(p.ImportPath, "proto/") { // generated
			continue
		}
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
