package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/weirdb/weir/"

// pure lists the packages below dataflow that have no I/O, clock or goroutine.
var pure = []string{"dataflow/batch", "dataflow/key", "dataflow/expr", "dataflow/agg", "dataflow/sql", "dataflow/plan", "dataflow/operator", "dataflow/coordinator"}

// law says, per room, which rooms of Weir its packages may import. The longest matching prefix counts. The root
// vocabulary (dataflow), internal/vfs and internal/phase are open to everybody.
var law = map[string][]string{
	"dataflow":             {}, // the root package alone: see onlyRoot
	"dataflow/batch":       {},
	"dataflow/key":         {"dataflow/batch"},
	"dataflow/expr":        {"dataflow/batch"},
	"dataflow/agg":         {"dataflow/batch"},
	"dataflow/sql":         {},
	"dataflow/plan":        {"dataflow/batch", "dataflow/key", "dataflow/expr", "dataflow/agg", "dataflow/sql"},
	"dataflow/operator":    {"dataflow/batch", "dataflow/key", "dataflow/expr", "dataflow/agg", "dataflow/plan"},
	"dataflow/coordinator": {},
	"dataflow/exchange":    {"dataflow/batch"},
	"dataflow/state":       {},
	"dataflow/checkpoint":  {"dataflow/state"},
	"dataflow/task":        {"dataflow/batch", "dataflow/key", "dataflow/expr", "dataflow/agg", "dataflow/plan", "dataflow/operator", "dataflow/exchange", "dataflow/checkpoint", "dataflow/state"},
	"statequery":           pure,
	"raftlog":              {"raftlog/frame", "raftlog/transport"},
	"raftlog/frame":        {},
	"raftlog/logstore":     {"raftlog/frame"},
	"raftlog/transport":    {},
	"raftlog/meta":         {"raftlog", "raftlog/logstore", "proto/weir/meta"},
	"raftlog/shard":        {"raftlog", "raftlog/logstore"},
	"sinks":                pure,
	"proto":                {"proto"},
	"clients":              {"proto", "clients", "internal/wire", "dataflow/batch", "dataflow/key", "dataflow/expr"},
	"node":                 {"node", "statequery", "raftlog", "sinks", "dataflow", "proto", "internal/wire", "clients/go"},
	"cmd":                  {"node", "clients", "dataflow", "proto", "internal/wire", "internal/bench", "cmd"},
	"internal/wire":        {"proto", "dataflow/batch", "dataflow/expr"},
	"internal":             {"node", "statequery", "raftlog", "sinks", "dataflow", "proto", "clients", "internal"},
}

// confined says where a third-party engine may be imported, by import path prefix.
var confined = map[string][]string{
	"github.com/cockroachdb/pebble": {"dataflow/state", "internal/vfs", "internal/testkit"},
	"github.com/hashicorp/raft":     {"raftlog"},
	"go.etcd.io/bbolt":              {"raftlog"},
	"google.golang.org/grpc":        {"node", "clients", "cmd", "proto", "internal"},
	"github.com/grpc-ecosystem":     {"node/gateway", "proto"},
	"github.com/spf13/cobra":        {"cmd"},
	"github.com/knadh/koanf":        {"cmd"},
	"github.com/prometheus":         {"node", "cmd"},
}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", module+"...")
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
			if !ours || imp == "dataflow" || imp == "internal/vfs" || imp == "internal/phase" {
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
