package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the top of the module, seen from this package.
const root = "../.."

// maxLines bounds a file that is not a test. Most are below 500; more than 700 hold a second concept.
const maxLines = 700

// sleeps names the tests that may wait for the clock, with the reason. Inside synctest.Test, also where a function of the
// package calls it, time is simulated, and sleeping is how a test moves it: that needs no entry.
var sleeps = map[string]string{}

// sourceFile is one Go file that people write.
type sourceFile struct {
	path string // slash-separated, from the module's root
	text []byte
	ast  *ast.File
	fset *token.FileSet
}

func (f *sourceFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f *sourceFile) dir() string { return path.Dir(f.path) }

func (f *sourceFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// sources parses every Go file of the module that is not generated.
func sources(t *testing.T) []*sourceFile {
	t.Helper()
	var files []*sourceFile
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f := &sourceFile{text: text, fset: token.NewFileSet()}
		if f.ast, err = parser.ParseFile(f.fset, name, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		f.path = filepath.ToSlash(rel)
		if !ast.IsGenerated(f.ast) {
			files = append(files, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// calls reports whether n is a call of one of the functions of a package, by the name that the package is used under.
func calls(n ast.Node, pkg string, names ...string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg && slices.Contains(names, sel.Sel.Name)
}

func TestFilesAreShort(t *testing.T) {
	for _, f := range sources(t) {
		if n := bytes.Count(f.text, []byte("\n")); !f.isTest() && n > maxLines {
			t.Errorf("%s has %d lines: over %d it holds a second concept", f.path, n, maxLines)
		}
	}
}

// simulators returns the test functions that run something in synctest.Test, as "dir.name".
func simulators(files []*sourceFile) map[string]bool {
	found := map[string]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.isTest() {
				ast.Inspect(fn, func(n ast.Node) bool {
					if calls(n, "synctest", "Test") {
						found[f.dir()+"."+fn.Name.Name] = true
					}
					return true
				})
			}
		}
	}
	return found
}

func TestNoTestSleeps(t *testing.T) {
	files := sources(t)
	simulated, used := simulators(files), map[string]bool{}
	for _, f := range files {
		if !f.isTest() {
			continue // the linter sees to these
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if calls(n, "synctest", "Test") {
				return false
			}
			if call, ok := n.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); ok && simulated[f.dir()+"."+id.Name] {
					return false
				}
			}
			if calls(n, "time", "Sleep") {
				used[f.path] = true
				if sleeps[f.path] == "" {
					t.Errorf("%s:%d sleeps: wait for the fact, or use testing/synctest", f.path, f.line(n))
				}
			}
			return true
		})
	}
	for path := range sleeps {
		if !used[path] {
			t.Errorf("%s sleeps no more: take it off the list", path)
		}
	}
}

func TestThePureHaveNoClockAndNoGoroutine(t *testing.T) {
	banned := []string{"context", "crypto/rand", "io/fs", "log", "math/rand", "net", "os", "path/filepath", "runtime", "syscall"}
	for _, f := range sources(t) {
		if f.isTest() || f.dir() != "dataflow" && !slices.Contains(pure, f.dir()) {
			continue
		}
		for _, imp := range f.ast.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); anyUnder(path, banned) && path != "net/url" { // which reads texts
				t.Errorf("%s imports %s", f.path, path)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if calls(n, "time", "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick") {
				t.Errorf("%s:%d reads a clock", f.path, f.line(n))
			}
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s:%d starts a goroutine", f.path, f.line(g))
			}
			return true
		})
	}
}

func TestNothingRegistersItself(t *testing.T) {
	for _, f := range sources(t) {
		for _, imp := range f.ast.Imports {
			if imp.Name != nil && imp.Name.Name == "_" && imp.Path.Value != `"embed"` {
				t.Errorf("%s imports %s for its side effects: name it where the parts are put together", f.path, imp.Path.Value)
			}
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s:%d has an init", f.path, f.line(fn))
			}
		}
	}
}
