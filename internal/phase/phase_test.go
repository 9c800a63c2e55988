package phase_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/weirdb/weir/internal/phase"
)

const childEnv = "WEIR_PHASE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		r, err := phase.Open(path)
		if err != nil {
			panic(err)
		}
		r.Enter(phase.Merge)
		r.Enter(phase.Append)
		r.Enter(phase.Append)
		r.Leave(phase.Append)
		_, _ = os.Stdout.WriteString("ready\n")
		select {} // until killed
	}
	os.Exit(m.Run())
}

func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("phase records are there on Linux only")
	}
}

func read(t *testing.T, path string) phase.Counts {
	t.Helper()
	r, err := phase.NewReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPhasesOfAKilledProcessAreReadAfterwards(t *testing.T) {
	linuxOnly(t)
	path := filepath.Join(t.TempDir(), "phases")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	c := read(t, path)
	for _, p := range phase.All() {
		want := uint64(0)
		if p == phase.Merge || p == phase.Append {
			want = 1
		}
		if got := c.In(p); got != want {
			t.Errorf("%s: %d under way, want %d", p, got, want)
		}
	}
	if got := c[phase.Append].Entered; got != 2 {
		t.Errorf("append was entered %d times, want 2", got)
	}
}

func TestOpenBeginsTheRecordAnew(t *testing.T) {
	linuxOnly(t)
	path := filepath.Join(t.TempDir(), "phases")
	for range 2 {
		r, err := phase.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		r.Enter(phase.Delta)
		if c := read(t, path); c.In(phase.Delta) != 1 {
			t.Errorf("%d deltas under way, want 1", c.In(phase.Delta))
		}
	}
}

func TestNilRecordsNothing(t *testing.T) {
	var r *phase.Recorder
	r.Enter(phase.Commit)
	r.Leave(phase.Commit)
}

func TestEveryPhaseHasAName(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range phase.All() {
		if s := p.String(); s == "" || seen[s] {
			t.Errorf("phase %d is called %q", uint8(p), s)
		}
		seen[p.String()] = true
	}
	if s := phase.Phase(200).String(); s != "phase(200)" {
		t.Errorf("an unknown phase is called %q", s)
	}
}

func TestAFileThatIsNoRecordIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "phases")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := read(t, path); c != (phase.Counts{}) {
		t.Errorf("an empty record reads %v", c)
	}
	if err := os.WriteFile(path, []byte("something else, long enough to be a record of phases: "+string(make([]byte, 4096))), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := phase.NewReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(); err == nil {
		t.Error("it was read as a record")
	}
}
