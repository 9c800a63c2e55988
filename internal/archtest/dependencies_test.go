package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryDependencyIsExplained compares the direct requirements of go.mod with the table of docs/dependencies.md: each
// row starts with the module's path.
func TestEveryDependencyIsExplained(t *testing.T) {
	required := map[string]bool{}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		path, ok := strings.CutPrefix(line, "\t")
		if ok && !strings.Contains(path, "// indirect") {
			path, _, _ = strings.Cut(path, " ")
			required[path] = true
		}
	}
	if len(required) == 0 {
		t.Fatal("go.mod requires nothing: has its form changed?")
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(doc), -1) {
		explained[m[1]] = true
	}
	for path := range required {
		if !explained[path] {
			t.Errorf("docs/dependencies.md does not say why Weir depends on %s", path)
		}
	}
	for path := range explained {
		if !required[path] {
			t.Errorf("docs/dependencies.md explains %s, which go.mod does not require", path)
		}
	}
}
