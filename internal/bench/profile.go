package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profile writes NAME.cpu.pprof and NAME.allocs.pprof into dir when stop is called. With dir "" it does nothing.
func profile(dir, name string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory for profiles: %w", err)
	}
	cpu, err := os.Create(filepath.Join(dir, name+".cpu.pprof"))
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(fmt.Errorf("start a profile: %w", err), cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		err := cpu.Close()
		allocs, aerr := os.Create(filepath.Join(dir, name+".allocs.pprof"))
		if aerr != nil {
			return errors.Join(err, aerr)
		}
		runtime.GC() // the profile is as of the last collection
		return errors.Join(err, pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
	}, nil
}
