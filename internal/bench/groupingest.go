package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/vfs"
)

// groupIngest measures appends to a group of three: rates in turns with a loop that appends the same bytes to three files, and
// with JetStream if there is one; then acknowledgements at half of the rate.
func (r *runner) groupIngest(ctx context.Context, f *figures) (err error) {
	// The plan is made and deleted: its stream stays.
	s, err := r.openGroup(ctx, "group-ingest", ingestStream+ingestView, r.size.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := s.client.DeletePipeline(ctx, "bench"); err != nil {
		return err
	}
	var nats *natsLoad
	if r.cfg.NATS != "" {
		if nats, err = openNATS(ctx, r.cfg.NATS); err != nil {
			return fmt.Errorf("open streams of NATS: %w", err)
		}
		defer func() { err = errors.Join(err, nats.close()) }()
	}
	if _, err := s.whole(ctx); err != nil {
		return err
	}
	disk, err := s.group.disk()
	if err != nil {
		return err
	}
	if err := r.groupRates(ctx, s, nats, f); err != nil {
		return err
	}
	r.progress("group ingest: half load")
	var runs []latencies
	for range r.size.windows {
		l, err := s.acknowledgements(ctx, f.list[0].Value/2, 2*r.size.window)
		if err != nil {
			return err
		}
		runs = append(runs, l)
	}
	f.addLatency("ack_at_half_load", runs...)
	if _, err := s.whole(ctx); err != nil { // followers have it all
		return err
	}
	after, err := s.group.disk()
	if err != nil {
		return err
	}
	f.add("disk_bytes_per_user_byte", "ratio", float64(after-disk)/float64(s.load.rows*rowBytes))
	// Now the plan reads all of it, and counts.
	if _, err := s.client.Deploy(ctx, weir.Deploy{Pipeline: "bench", SQL: ingestView}); err != nil {
		return err
	}
	return s.check(ctx, fmt.Sprintf(ingestCheck, s.load.truth.keys))
}

// groupRates measures the rates of all, in turns.
func (r *runner) groupRates(ctx context.Context, s *session, nats *natsLoad, f *figures) error {
	if err := s.send(ctx, r.size.settle); err != nil { // warm up
		return err
	}
	var rates, mbs, files, ratios, nodeCPU, clientCPU, natsRates, natsRatios []float64
	for range r.size.windows {
		r.progress("group ingest")
		sent, nodes, client := s.load.rows, s.group.cpuTime(), cpuTime(os.Getpid())
		rate, err := s.maximum(ctx, 2*r.size.window)
		if err != nil {
			return err
		}
		millions := float64(s.load.rows-sent) / 1e6
		if n := s.group.cpuTime() - nodes; n > 0 {
			nodeCPU = append(nodeCPU, n.Seconds()/millions)
			clientCPU = append(clientCPU, (cpuTime(os.Getpid())-client).Seconds()/millions)
		}
		r.progress("group ingest: plain files")
		plain, err := plainRate(r.dataDir(), groupNodes, int64(rate*rowBytes*r.size.window.Seconds()))
		if err != nil {
			return err
		}
		rates, mbs = append(rates, rate), append(mbs, rate*rowBytes/1e6)
		files, ratios = append(files, plain/1e6), append(ratios, rate*rowBytes/plain)
		if nats == nil {
			continue
		}
		r.progress("group ingest: NATS")
		other, err := nats.load(ctx, r.size.window)
		if err != nil {
			return err
		}
		natsRates, natsRatios = append(natsRates, other), append(natsRatios, rate/other)
	}
	f.add("rows_per_second", "rows/s", rates...)
	f.add("megabytes_per_second", "MB/s", mbs...)
	f.add("plain_files_megabytes_per_second", "MB/s", files...)
	f.add("ratio_to_plain_files", "ratio", ratios...)
	f.add("nats_rows_per_second", "rows/s", natsRates...)
	f.add("ratio_to_nats", "ratio", natsRatios...)
	f.add("nodes_cpu_per_million_rows", "s", nodeCPU...)
	f.add("client_cpu_per_million_rows", "s", clientCPU...)
	return nil
}

// plainChunk is what the plain file takes before each sync: so much that the disk's speed counts and not its latency. A
// smaller one would be an easier partner.
const plainChunk = 1 << 20

// plainRate appends bytes to each of some files, with fdatasync after every chunk, and returns the bytes per second of one.
func plainRate(path string, files int, bytes int64) (rate float64, err error) {
	var opened []vfs.File
	defer func() {
		for i, f := range opened {
			err = errors.Join(err, f.Close(), vfs.Default.Remove(fmt.Sprintf("%s.%d", path, i)))
		}
	}()
	for i := range files {
		f, err := vfs.Default.Create(fmt.Sprintf("%s.%d", path, i), vfs.WriteCategoryUnspecified)
		if err != nil {
			return 0, fmt.Errorf("make a plain file: %w", err)
		}
		opened = append(opened, f)
	}
	chunk := make([]byte, plainChunk)
	random := xorshift(1)
	for i := range chunk {
		chunk[i] = byte(random.next())
	}
	began, wrote := time.Now(), int64(0)
	for wrote < max(bytes, plainChunk) {
		for _, f := range opened {
			_, err := f.Write(chunk)
			if err == nil {
				err = f.SyncData()
			}
			if err != nil {
				return 0, fmt.Errorf("append to a plain file: %w", err)
			}
		}
		wrote += plainChunk
	}
	return float64(wrote) / time.Since(began).Seconds(), nil
}

// diskUsage returns what the files under a directory take on the disk. A file that goes meanwhile counts for nothing.
func diskUsage(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var i fs.FileInfo
			if i, err = e.Info(); err == nil {
				sum += allocated(i)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("add up what is in %s: %w", dir, err)
	}
	return sum, nil
}
