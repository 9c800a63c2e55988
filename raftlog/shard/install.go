package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// An install has four states, of which a crash leaves one:
//
//	nothing       no <dir>.incoming
//	pulling       <dir>.incoming/manifest: files and, in the log store's group <group>.incoming, entries have come; those
//	              that are there are not fetched again (sums/ says what was received)
//	pulled        <dir>.incoming/PULLED: all is there, durable and checked; the old replica is whole
//	decided       PULLED, and the group has taken its name: the old log is gone, the directories are being swapped
//
// The log store's Adopt, one write, is what decides. Until then the old replica may be used, afterwards Swap or Recover
// must come to their end first.
const (
	incomingSuffix = ".incoming"
	manifestFile   = "manifest"
	pulledFile     = "PULLED"
	sumsDir        = "sums"
)

var (
	// ErrInstallPending: a replica was installed up to its last steps. Installer.Recover does them.
	ErrInstallPending = errors.New("shard: an install must be finished first")
	// ErrNotPulled: there is nothing to install.
	ErrNotPulled = errors.New("shard: no replica was pulled")
	// ErrOvertaken: the replica here has come further than the one that was pulled, and may have acknowledged what that does
	// not contain. What was pulled is discarded.
	ErrOvertaken = errors.New("shard: the replica here is newer than what was pulled")
	// ErrSource: what is fetched does not come, or comes damaged or otherwise than the manifest says, again and again. What
	// has come stays; another Pull of the same manifest goes on.
	ErrSource = errors.New("shard: the source of a replica fails")
)

// Fetch returns a file of a manifest's from an offset on, as Lease.Open does at the source. The stream may end early.
type Fetch func(ctx context.Context, name string, offset int64) (io.ReadCloser, error)

// InstallConfig says where a replica goes.
type InstallConfig struct {
	Shard dataflow.ShardID
	FS    vfs.FS
	Dir   string          // the shard's: Config.Raft.Dir; the state is in Dir/state, and what comes in goes to Dir.incoming
	Logs  *logstore.Store // the node's
	Group string          // of the shard's log in it
	// CheckState reads all of the state store that was pulled into dir, checks it, and returns what it holds.
	CheckState func(ctx context.Context, dir string) (map[dataflow.PipelineUID]dataflow.DeltaRef, error)
	// Attempts are how often in a row a fetch may bring nothing; default 3.
	Attempts int
	Logger   *slog.Logger // default: discarded
}

// Installer brings a replica of a shard from another node in place of the one that is here, if any. Pull may run while that
// one is in use, also for hours; Swap, Recover and Discard want the shard's log and state closed. One goroutine uses it.
//
// A replica that lags is restarted for the swap, and not refilled while it runs: its Raft member would have to be stopped
// all the same while entries, state and snapshot change together, and a restart is a path that is walked every day.
type Installer struct {
	cfg      InstallConfig
	incoming string
}

// NewInstaller returns an installer. It looks at nothing yet.
func NewInstaller(cfg InstallConfig) (*Installer, error) {
	if cfg.FS == nil || cfg.Dir == "" || cfg.Logs == nil || cfg.Group == "" || cfg.CheckState == nil {
		return nil, errors.New("shard.InstallConfig: FS, Dir, Logs, Group and CheckState must be set")
	}
	def(&cfg.Attempts, 3)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = cfg.Logger.With("shard", cfg.Shard)
	return &Installer{cfg: cfg, incoming: cfg.Dir + incomingSuffix}, nil
}

// Install is Pull and Swap, for a shard that is not open.
func (in *Installer) Install(ctx context.Context, m Manifest, fetch Fetch) error {
	if err := in.Pull(ctx, m, fetch); err != nil {
		return err
	}
	return in.Swap()
}

// Swap puts what was pulled into the place of the replica that is here. After an error it, or Recover, is called again; a
// crash in it is Recover's to end. Errors: ErrNotPulled, ErrOvertaken, those of the disk.
func (in *Installer) Swap() error {
	m, err := in.pulled()
	if err == nil && m == nil {
		err = ErrNotPulled
	}
	if err == nil {
		err = in.swap(m)
	}
	if err != nil {
		return fmt.Errorf("install shard %d: %w", in.cfg.Shard, err)
	}
	return nil
}

// Recover ends an install that was interrupted after all was pulled, and says whether it has installed a replica. What was
// pulled in part stays for another Pull, or Discard. It is called at each start before the shard is opened.
func (in *Installer) Recover() (installed bool, err error) {
	if pulled, err := exists(in.cfg.FS, in.path(pulledFile)); err != nil || !pulled {
		return false, err
	}
	err = in.Swap()
	if errors.Is(err, ErrOvertaken) {
		return false, nil
	}
	return err == nil, err
}

// Pending returns the manifest of a pull that was begun: Pull of the same one goes on with it, if its source still keeps that
// export. Nil when there is none.
func (in *Installer) Pending() (*Manifest, error) { return in.readManifest(manifestFile) }

// Discard gives up what was pulled. An install that is decided comes to its end instead.
func (in *Installer) Discard() error {
	m, err := in.pulled()
	if err != nil {
		return err
	}
	if m != nil {
		if staged, err := in.staged(); err != nil {
			return err
		} else if staged.Begins() != m.Index {
			return in.swap(m)
		}
	}
	return in.discard()
}

func (in *Installer) path(name string) string {
	return in.cfg.FS.PathJoin(append([]string{in.incoming}, strings.Split(name, "/")...)...)
}

func (in *Installer) staged() (*logstore.GroupLog, error) {
	return in.cfg.Logs.Group(in.cfg.Group + incomingSuffix)
}

// pulled returns the manifest of what was pulled whole; nil when nothing was.
func (in *Installer) pulled() (*Manifest, error) { return in.readManifest(pulledFile) }

func (in *Installer) readManifest(name string) (*Manifest, error) {
	b, err := vfs.ReadFile(in.cfg.FS, in.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeManifest(b)
}

func (in *Installer) swap(m *Manifest) error {
	staged, err := in.staged()
	if err != nil {
		return err
	}
	if staged.Begins() == m.Index { // else it has taken its name already
		if err := in.decide(m, staged); err != nil {
			return err
		}
	}
	if err := vfs.MkdirDurable(in.cfg.FS, in.cfg.Dir); err != nil {
		return err
	}
	for _, part := range [...]string{stateDir, raftlog.SnapshotDir} {
		if err := in.swapDir(part); err != nil {
			return err
		}
	}
	// The manifest goes first, so that nothing takes the rest for what has come of a pull.
	for _, name := range [...]string{manifestFile, pulledFile} {
		if err := in.remove(name); err != nil {
			return err
		}
	}
	return in.removeAll()
}

// decide lets the log that was pulled take the old one's place.
func (in *Installer) decide(m *Manifest, staged *logstore.GroupLog) error {
	old, err := in.cfg.Logs.Group(in.cfg.Group)
	if err != nil {
		return err
	}
	last, err := old.LastIndex()
	if err != nil {
		return err
	}
	if have := max(dataflow.LogIndex(last), old.Begins()); have > m.Index {
		return errors.Join(fmt.Errorf("%w: it is at index %d, what was pulled at %d", ErrOvertaken, have, m.Index), in.discard())
	}
	if err := raftlog.CarryVote(old, staged, m.Term); err != nil {
		return err
	}
	return in.cfg.Logs.Adopt(staged.Name(), in.cfg.Group)
}

// swapDir puts a directory into its place. After a crash its name may be in both places.
func (in *Installer) swapDir(part string) error {
	f := in.cfg.FS
	from, to, old := in.path(part), f.PathJoin(in.cfg.Dir, part), in.path("old-"+part)
	if here, err := exists(f, from); err != nil || !here {
		return err
	}
	if there, err := exists(f, to); err != nil {
		return err
	} else if there {
		if err := f.RemoveAll(old); err != nil {
			return err
		}
		if err := f.Rename(to, old); err != nil {
			return err
		}
	}
	if err := f.Rename(from, to); err != nil {
		return err
	}
	// The new name first: between the two syncs, the directory must be found somewhere.
	if err := vfs.SyncDir(f, in.cfg.Dir); err != nil {
		return err
	}
	return vfs.SyncDir(f, in.incoming)
}

// remove removes a file of the incoming directory, durably.
func (in *Installer) remove(name string) error {
	if here, err := exists(in.cfg.FS, in.path(name)); err != nil || !here {
		return err
	}
	if err := in.cfg.FS.Remove(in.path(name)); err != nil {
		return err
	}
	return vfs.SyncDir(in.cfg.FS, in.incoming)
}

func (in *Installer) removeAll() error {
	if err := in.cfg.FS.RemoveAll(in.incoming); err != nil {
		return err
	}
	return vfs.SyncDir(in.cfg.FS, in.cfg.FS.PathDir(in.incoming))
}

// discard removes all that came. PULLED goes first: without the log that belongs to it, it would mean that that has taken
// its name.
func (in *Installer) discard() error {
	if here, err := exists(in.cfg.FS, in.incoming); err != nil {
		return err
	} else if here {
		for _, name := range [...]string{pulledFile, manifestFile} {
			if err := in.remove(name); err != nil {
				return err
			}
		}
	}
	staged, err := in.staged()
	if err != nil {
		return err
	}
	if staged.Begins() != 0 {
		if err := staged.Reset(0); err != nil {
			return err
		}
	}
	if here, err := exists(in.cfg.FS, in.incoming); err != nil || !here {
		return err
	}
	return in.removeAll()
}

func exists(f vfs.FS, path string) (bool, error) {
	_, err := f.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
