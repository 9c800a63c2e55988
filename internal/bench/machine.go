package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/weirdb/weir/internal/vfs"
)

// Machine is the Bench of the first figures: their Case says what all others were measured on.
const Machine = "machine"

func machine() []Figure {
	f := &figures{bench: Machine}
	f.name = strings.Join(nonEmpty(procValue("/proc/cpuinfo", "model name"), kernel(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), ", ")
	f.add("cores", "cores", float64(runtime.GOMAXPROCS(0)))
	if kb, ok := strings.CutSuffix(procValue("/proc/meminfo", "MemTotal"), " kB"); ok {
		if n, err := strconv.ParseFloat(kb, 64); err == nil {
			f.add("memory", "GiB", n/(1<<20))
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(load), " ")
		if n, err := strconv.ParseFloat(first, 64); err == nil {
			// What others did while we were not running yet: near 0, or the figures are not worth much.
			f.add("load_average_before", "processes", n)
		}
	}
	return f.list
}

func nonEmpty(parts ...string) []string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// kernel returns the operating system's name and release, where it tells.
func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return "Linux " + strings.TrimSpace(string(b))
}

// procValue returns the first value of a name in a file of "name : value" lines; "" where there is none.
func procValue(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// resident returns the memory that a process has in RAM, in bytes; 0 where the system does not tell.
func resident(pid int) int64 {
	kb, ok := strings.CutSuffix(procValue(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"), " kB")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(kb, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// clockTick is the unit of CPU times that Linux tells (USER_HZ).
const clockTick = 10 * time.Millisecond

// cpuTime returns the CPU time that a process has taken; 0 where the system does not tell.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// After the name in parentheses: state is field 3, utime and stime are fields 14 and 15.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 {
		return 0
	}
	ticks := int64(0)
	for _, v := range f[11:13] {
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// canarySyncs is how many small syncs show what the disk does: enough for a 99th percentile, few enough for a second.
const canarySyncs = 200

// canaries measure the machine beside Weir: a loop that only needs a core, and small synchronous writes. Figures of two
// runs compare only as far as their canaries do.
func canaries(dir string, syncs int) ([]Figure, error) {
	f := &figures{bench: "canary"}
	var loops []float64
	for range 5 {
		began := time.Now()
		x := uint64(1)
		for range 20_000_000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		runtime.KeepAlive(x)
		loops = append(loops, milliseconds(time.Since(began)))
	}
	f.add("cpu_loop", "ms", loops...)

	file, err := vfs.Default.Create(vfs.Default.PathJoin(dir, "canary"), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("make the canary's file: %w", err)
	}
	var took latencies
	block := make([]byte, 4<<10)
	for range syncs {
		began := time.Now()
		if _, err = file.Write(block); err == nil {
			err = file.SyncData()
		}
		if err != nil {
			_ = file.Close() // the write's error is the one to know
			return nil, fmt.Errorf("write the canary's file: %w", err)
		}
		took = append(took, time.Since(began))
	}
	f.addLatency("fdatasync_4kib", took)
	return f.list, file.Close()
}
