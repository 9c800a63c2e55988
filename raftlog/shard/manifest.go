package shard

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// Manifest says what makes a replica of a shard: the newest snapshot of a sound member, the state store as it was a moment
// later, and the entries that the snapshot refers to. So the store may be newer than the snapshot, and then skips what the
// log feeds it again (P7), but never older than where the snapshot's unsettled deltas begin.
type Manifest struct {
	Version int              `json:"version"` // manifestVersion
	Lease   string           `json:"lease"`   // names the export at its source; another one has other files
	Shard   dataflow.ShardID `json:"shard"`
	// Index and Term are the snapshot's: the replica goes on behind Index.
	Index dataflow.LogIndex `json:"index"`
	Term  uint64            `json:"term"`
	// Files to fetch, the snapshot first. Names are paths in the shard's directory, with slashes.
	Files []File `json:"files"`
	// Entries to fetch, as EntriesName: how many, and about how many bytes.
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	// State says up to which delta the state store holds each pipeline.
	State map[dataflow.PipelineUID]dataflow.DeltaRef `json:"state"`
}

// File is one file of a Manifest.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Total returns about how many bytes there are to fetch.
func (m *Manifest) Total() int64 {
	n := m.Bytes
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// EntriesName is the name under which the entries are fetched. They have no byte offsets: an offset is the index of the
// first entry that is wanted.
const EntriesName = "entries"

const (
	manifestVersion = 1
	stateDir        = "state"
	exportDir       = "export"
)

// validate refuses what no source writes: a name must not lead out of the directory that is being filled.
func (m *Manifest) validate(shard dataflow.ShardID) error {
	if m.Version != manifestVersion {
		return fmt.Errorf("a manifest of version %d, this program reads version %d", m.Version, manifestVersion)
	}
	if m.Shard != shard || m.Index == 0 || m.Lease == "" || len(m.Files) == 0 {
		return fmt.Errorf("a manifest of shard %d at index %d, wanted one of shard %d", m.Shard, m.Index, shard)
	}
	for i, f := range m.Files {
		top, rest, _ := strings.Cut(f.Name, "/")
		ok := f.Size >= 0 && rest != "" && (top == stateDir || top == raftlog.SnapshotDir) && (top == raftlog.SnapshotDir) == (i == 0)
		for part := range strings.SplitSeq(rest, "/") {
			ok = ok && part != "" && part != "." && part != ".." && !strings.ContainsAny(part, "\\:\x00")
		}
		if !ok {
			return fmt.Errorf("a manifest with the file %q of %d bytes", f.Name, f.Size)
		}
	}
	return nil
}

func (m *Manifest) encode() ([]byte, error) { return json.Marshal(m) }

func decodeManifest(b []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// What is fetched comes in pieces: length (4) | CRC32C of the bytes (4) | bytes, numbers little-endian. A piece of a file is
// its next bytes; one of the entries is an entry: index (8) | term (8) | appended at, ns (8) | command in its frame.
const (
	pieceHead  = 8
	pieceBytes = 256 << 10
	entryHead  = 24
	// maxPiece is more than any entry: a damaged length must not take the memory.
	maxPiece = 64 << 20
)

// errPiece says that a piece is not what was sent.
var errPiece = errors.New("shard: a piece is damaged")

func pieceSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// appendPiece appends a piece of the concatenated parts.
func appendPiece(dst []byte, parts ...[]byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, pieceHead)...)
	for _, p := range parts {
		dst = append(dst, p...)
	}
	body := dst[at+pieceHead:]
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(dst[at+4:], pieceSum(body))
	return dst
}

// pieces reads pieces.
type pieces struct {
	r   *bufio.Reader
	buf []byte
}

func newPieces(r io.Reader) *pieces { return &pieces{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next piece, which is valid until the call after, and its checksum. The error is io.EOF at the end, and
// errPiece or another one where the stream is damaged or breaks off.
func (p *pieces) next() ([]byte, uint32, error) {
	var head [pieceHead]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return nil, 0, err
	}
	n, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if n > maxPiece || n == 0 {
		return nil, 0, fmt.Errorf("%w: %d bytes", errPiece, n)
	}
	if uint32(cap(p.buf)) < n {
		p.buf = make([]byte, n)
	}
	b := p.buf[:n]
	if _, err := io.ReadFull(p.r, b); err != nil {
		return nil, 0, fmt.Errorf("a piece breaks off: %w", err)
	}
	if pieceSum(b) != sum {
		return nil, 0, errPiece
	}
	return b, sum, nil
}

// appendStored appends the piece of an entry.
func appendStored(dst []byte, e *logstore.Stored) []byte {
	head := make([]byte, 0, entryHead)
	head = binary.LittleEndian.AppendUint64(head, uint64(e.Index))
	head = binary.LittleEndian.AppendUint64(head, e.Term)
	head = binary.LittleEndian.AppendUint64(head, uint64(e.Appended))
	return appendPiece(dst, head, e.Data)
}

// decodeStored decodes an entry's piece; the data is copied.
func decodeStored(b []byte) (logstore.Stored, error) {
	if len(b) < entryHead {
		return logstore.Stored{}, errPiece
	}
	return logstore.Stored{
		Index:    dataflow.LogIndex(binary.LittleEndian.Uint64(b)),
		Term:     binary.LittleEndian.Uint64(b[8:]),
		Appended: int64(binary.LittleEndian.Uint64(b[16:])),
		Data:     append([]byte(nil), b[entryHead:]...),
	}, nil
}
