package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/frame"
	"github.com/weirdb/weir/raftlog/logstore"
)

// Pull fetches what a manifest names, beside the replica that is here, and checks it: pieces against their checksums, the
// snapshot and the state store against theirs, every entry against what the snapshot says of it, and the state store
// against what it must hold for the snapshot. What an earlier Pull of the same manifest has brought is not fetched again;
// what one of another manifest has brought is removed. It may be interrupted at any moment.
//
// Errors: ErrSource, those of fetch in it; CORRUPT when what came is whole but wrong, so that another source must be found.
func (in *Installer) Pull(ctx context.Context, m Manifest, fetch Fetch) error {
	err := m.validate(in.cfg.Shard)
	if err == nil {
		err = in.pull(ctx, &m, fetch)
	}
	if err != nil {
		return fmt.Errorf("pull shard %d: %w", in.cfg.Shard, err)
	}
	return nil
}

func (in *Installer) pull(ctx context.Context, m *Manifest, fetch Fetch) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	if whole, err := in.begin(m, text); err != nil || whole {
		return err
	}
	p := &pull{in: in, m: m, fetch: fetch}
	for i := range m.Files {
		if err := p.file(ctx, i); err != nil {
			return err
		}
	}
	if err := p.syncDirs(); err != nil {
		return err
	}
	machine, err := p.snapshot()
	if err != nil {
		return err
	}
	if err := p.entries(ctx, machine); err != nil {
		return err
	}
	if err := p.state(ctx, machine); err != nil {
		return err
	}
	return vfs.WriteFile(in.cfg.FS, in.path(pulledFile), text)
}

// begin makes ready for a pull, or for the rest of one. whole = there is no rest.
func (in *Installer) begin(m *Manifest, text []byte) (whole bool, err error) {
	for _, name := range [...]string{pulledFile, manifestFile} {
		have, err := in.readManifest(name)
		if err != nil {
			return false, err
		}
		if have == nil {
			continue
		}
		if same, err := have.encode(); err != nil {
			return false, err
		} else if !bytes.Equal(same, text) {
			break
		}
		if name == pulledFile {
			return true, nil
		}
		staged, err := in.staged()
		if err == nil && staged.Begins() != m.Index {
			err = staged.Reset(m.Index)
		}
		return false, err
	}
	if err := in.Discard(); err != nil {
		return false, err
	}
	if err := vfs.MkdirDurable(in.cfg.FS, in.incoming); err != nil {
		return false, err
	}
	if err := vfs.WriteFile(in.cfg.FS, in.path(manifestFile), text); err != nil {
		return false, err
	}
	staged, err := in.staged()
	if err != nil {
		return false, err
	}
	return false, staged.Reset(m.Index)
}

// pull is one Pull.
type pull struct {
	in    *Installer
	m     *Manifest
	fetch Fetch
	dirs  []string // that were made
}

// retry calls some until it says that all is there. It gives up when some has brought nothing several times in a row.
func (p *pull) retry(ctx context.Context, name string, some func() (progress, done bool, err error)) error {
	for failed := 0; ; {
		progress, done, err := some()
		if done {
			return nil // whatever the end of the stream was
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		var local *localError
		if errors.As(err, &local) {
			return local.err
		}
		if failed++; progress {
			failed = 0
		}
		if failed >= p.in.cfg.Attempts {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: %s: %w", ErrSource, name, err)
		}
		p.in.cfg.Logger.Info("a fetch broke off and is taken up again", "name", name, "err", err)
	}
}

// localError is an error that no other fetch mends.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }

func local(err error) error {
	if err == nil {
		return nil
	}
	return &localError{err}
}

// file brings one file. Beside it lie length and checksum of the pieces that have come, so that after any crash the part
// of it that is sound is known.
func (p *pull) file(ctx context.Context, i int) error {
	f := p.m.Files[i]
	fs := p.in.cfg.FS
	path := p.in.path(f.Name)
	for _, dir := range [...]string{fs.PathDir(path), p.in.path(sumsDir)} {
		if !slices.Contains(p.dirs, dir) {
			if err := vfs.MkdirDurable(fs, dir); err != nil {
				return err
			}
			p.dirs = append(p.dirs, dir)
		}
	}
	w, err := p.in.resume(path, p.in.path(fmt.Sprintf("%s/%d", sumsDir, i)), f.Size)
	if err != nil {
		return err
	}
	if w.have < f.Size {
		err = p.retry(ctx, f.Name, func() (progress, done bool, err error) {
			before := w.have
			err = p.filePieces(ctx, f, w)
			return w.have > before, w.have == f.Size, err
		})
	}
	if err == nil {
		err = errors.Join(w.data.Sync(), w.sums.Sync())
	}
	if err = errors.Join(err, w.data.Close(), w.sums.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

func (p *pull) filePieces(ctx context.Context, f File, w *partFile) (err error) {
	r, err := p.fetch(ctx, f.Name, w.have)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	in := newPieces(r)
	for w.have < f.Size {
		b, sum, err := in.next()
		if err != nil {
			return err
		}
		if w.have+int64(len(b)) > f.Size {
			return fmt.Errorf("%w: more than the %d bytes of the file", errPiece, f.Size)
		}
		if err := w.add(b, sum); err != nil {
			return local(err)
		}
	}
	return nil
}

// partFile is a file that is arriving.
type partFile struct {
	data, sums vfs.File
	have       int64 // bytes that are sound
	synced     int64
}

// syncEvery bounds what is left to be synced when the file is whole.
const syncEvery = 32 << 20

func (w *partFile) add(b []byte, sum uint32) error {
	if _, err := w.data.WriteAt(b, w.have); err != nil {
		return err
	}
	if _, err := w.sums.Write(appendSum(nil, len(b), sum)); err != nil {
		return err
	}
	w.have += int64(len(b))
	if w.have-w.synced < syncEvery {
		return nil
	}
	w.synced = w.have
	return w.data.SyncData()
}

func appendSum(dst []byte, n int, sum uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(dst, uint32(n)), sum)
}

// resume opens a file that may have come in part, behind the pieces of it that are sound.
func (in *Installer) resume(path, sums string, size int64) (w *partFile, err error) {
	known, err := vfs.ReadFile(in.cfg.FS, sums)
	if err != nil {
		known = nil // never mind why: then nothing has come
	}
	w = &partFile{}
	if w.data, err = in.cfg.FS.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, err
	}
	var sound []byte
	buf := make([]byte, pieceBytes)
	for ; len(known) >= 8; known = known[8:] {
		n := int64(binary.LittleEndian.Uint32(known))
		if n == 0 || n > maxPiece || w.have+n > size {
			break
		}
		buf = slices.Grow(buf[:0], int(n))[:n]
		if m, err := w.data.ReadAt(buf, w.have); int64(m) < n {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, errors.Join(err, w.data.Close())
			}
			break
		}
		if pieceSum(buf) != binary.LittleEndian.Uint32(known[4:]) {
			break
		}
		w.have += n
		sound = append(sound, known[:8]...)
	}
	if w.sums, err = in.cfg.FS.Create(sums, vfs.WriteCategoryUnspecified); err == nil && len(sound) > 0 {
		_, err = w.sums.Write(sound)
	}
	if err != nil {
		return nil, errors.Join(err, w.data.Close())
	}
	return w, nil
}

// syncDirs makes the names of the files durable.
func (p *pull) syncDirs() error {
	for _, dir := range p.dirs {
		if err := vfs.SyncDir(p.in.cfg.FS, dir); err != nil {
			return err
		}
	}
	return vfs.SyncDir(p.in.cfg.FS, p.in.incoming)
}

// snapshot reads and checks the snapshot that came.
func (p *pull) snapshot() (*machine, error) {
	info, r, err := raftlog.NewestSnapshot(p.in.cfg.FS, p.in.incoming)
	if err != nil {
		return nil, err
	}
	if info == nil || info.Index != p.m.Index || info.Term != p.m.Term {
		if r != nil {
			err = r.Close()
		}
		return nil, errors.Join(dataflow.Errorf(dataflow.ReasonCorrupt, "the snapshot that came is not the sound one at index %d in term %d", p.m.Index, p.m.Term), err)
	}
	m, _, err := readSnapshot(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, dataflow.Errorf(dataflow.ReasonCorrupt, "snapshot at index %d: %w", info.Index, err)
	}
	return m, nil
}

// state checks the state store that came.
func (p *pull) state(ctx context.Context, m *machine) error {
	held, err := p.in.cfg.CheckState(ctx, p.in.path(stateDir))
	if err != nil {
		return err
	}
	for uid, ref := range p.m.State {
		if have, ok := held[uid]; !ok || have != ref {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "the state that came holds pipeline %d up to delta %s, at its source it was %s", uid, have, ref)
		}
	}
	for uid, d := range m.pipelines {
		have, ok := held[uid]
		if d.settled.Seq != 0 && ok && have.Compare(d.settled) < 0 {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "the state that came holds pipeline %d up to delta %s, and the log has only what comes after %s", uid, have, d.settled)
		}
	}
	return nil
}

// wanted is an entry that a machine refers to, and what is known of it.
type wanted struct {
	index  dataflow.LogIndex
	stream dataflow.StreamID // of rows
	count  int
	chunk  bool // of a delta; else rows, or with count 0 the end of a delta
	delta  dataflow.DeltaID
	number int
	hash   uint64
}

// wants lists the entries that the machine refers to, by index.
func (m *machine) wants() []wanted {
	var all []wanted
	for id, s := range m.streams {
		for i, b := range s.batches {
			all = append(all, wanted{index: b.index, stream: id, count: int(s.next(i) - b.first)})
		}
	}
	for uid, p := range m.pipelines {
		for i := range p.deltas {
			d := &p.deltas[i]
			id := dataflow.DeltaID{Pipeline: uid, Incarnation: d.ref.Incarnation, Seq: d.ref.Seq}
			for n, c := range d.chunks {
				all = append(all, wanted{index: c.index, chunk: true, delta: id, number: n, hash: c.hash})
			}
			if d.end != 0 {
				all = append(all, wanted{index: d.end, delta: id})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].index < all[j].index })
	return all
}

// check says whether an entry is the one that is wanted.
func (w *wanted) check(e *logstore.Stored) error {
	data, err := frame.Open(e.Data)
	if err != nil {
		return err
	}
	c, err := decode(data)
	if err != nil {
		return err
	}
	ok := false
	switch c := c.(type) {
	case *appendRows:
		ok = w.count > 0 && c.stream == w.stream && c.count == w.count
	case *deltaChunk:
		ok = w.chunk && c.delta == w.delta && c.chunk == w.number && xxhash.Sum64(c.data) == w.hash
	case *endDelta:
		ok = w.count == 0 && !w.chunk && c.delta == w.delta
	}
	if !ok {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d is not what the snapshot says", e.Index)
	}
	return nil
}

// placeBytes of entries are stored with one request: as much as one batch of the store.
const placeBytes = 4 << 20

// entries brings the entries that the machine refers to.
func (p *pull) entries(ctx context.Context, m *machine) error {
	staged, err := p.in.staged()
	if err != nil {
		return err
	}
	all := m.wants()
	_, last, _ := staged.Retained() // they are stored in order
	all = all[sort.Search(len(all), func(i int) bool { return all[i].index > last }):]
	if len(all) == 0 {
		return nil
	}
	return p.retry(ctx, EntriesName, func() (progress, done bool, err error) {
		before := len(all)
		all, err = p.someEntries(ctx, staged, all)
		return len(all) < before, len(all) == 0, err
	})
}

// someEntries fetches entries until the stream ends, and returns those that are still wanted.
func (p *pull) someEntries(ctx context.Context, staged *logstore.GroupLog, all []wanted) (_ []wanted, err error) {
	r, err := p.fetch(ctx, EntriesName, int64(all[0].index))
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	in := newPieces(r)
	var batch []logstore.Stored
	size := 0
	flush := func() error {
		if err := staged.Place(batch); err != nil {
			return local(err)
		}
		all = all[len(batch):]
		batch, size = batch[:0], 0
		return nil
	}
	for len(batch) < len(all) {
		b, _, err := in.next()
		var e logstore.Stored
		if err == nil {
			e, err = decodeStored(b)
		}
		want := &all[min(len(batch), len(all)-1)]
		if err == nil && e.Index != want.index {
			err = fmt.Errorf("%w: entry %d comes where %d should", errPiece, e.Index, want.index)
		}
		if err == nil {
			err = want.check(&e)
		}
		if err != nil {
			return all, errors.Join(flush(), err)
		}
		batch = append(batch, e)
		if size += len(e.Data); size >= placeBytes {
			if err := flush(); err != nil {
				return all, err
			}
		}
	}
	return all, flush()
}
