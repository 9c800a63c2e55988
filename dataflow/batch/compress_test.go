package batch_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// codec compresses a whole encoded batch.
type codec struct {
	name       string
	compress   func(dst, src []byte) []byte
	decompress func(dst, src []byte) ([]byte, error)
}

func codecs(b *testing.B) []codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		b.Fatal(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.IgnoreChecksum(true))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(dec.Close)
	return []codec{
		{"s2", func(dst, src []byte) []byte { return s2.Encode(dst[:cap(dst)], src) }, func(dst, src []byte) ([]byte, error) { return s2.Decode(dst[:cap(dst)], src) }},
		{"zstd-fastest", func(dst, src []byte) []byte { return enc.EncodeAll(src, dst[:0]) }, func(dst, src []byte) ([]byte, error) { return dec.DecodeAll(src, dst[:0]) }},
	}
}

// BenchmarkCompression measures what compressed batches in the log would cost and save (docs/engine.md): MB/s are of the
// encoded batch, x is how many times smaller it becomes. "decode" is what a reader does with it in any case.
func BenchmarkCompression(b *testing.B) {
	for _, rows := range []struct {
		name string
		of   func(b *testing.B) *batch.Batch
	}{{"bench", benchRows}, {"lines", bookLines}, {"clicks", clicks}, {"events", events}} {
		in := rows.of(b)
		encoded := batch.Encode(nil, in)
		for _, c := range codecs(b) {
			packed := c.compress(nil, encoded)
			size := int64(len(encoded))
			b.Run(fmt.Sprintf("%s/%s/compress", rows.name, c.name), func(b *testing.B) {
				b.SetBytes(size)
				buf := make([]byte, s2.MaxEncodedLen(len(encoded)))
				for b.Loop() {
					c.compress(buf, encoded)
				}
				b.ReportMetric(float64(size)/float64(len(packed)), "x")
			})
			b.Run(fmt.Sprintf("%s/%s/decompress", rows.name, c.name), func(b *testing.B) {
				b.SetBytes(size)
				buf := make([]byte, len(encoded))
				for b.Loop() {
					if _, err := c.decompress(buf, packed); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(rows.name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if _, err := batch.Decode(in.Schema, encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

const compressedRows = 4096 // of a batch that a producer sends

// benchRows are those of weir bench ingest: 84 of 100 bytes are random letters.
func benchRows(*testing.B) *batch.Batch {
	out := batch.NewBatch(dataflow.Schema{{Name: "k", Type: dataflow.TypeBigInt}, {Name: "t", Type: dataflow.TypeBigInt}, {Name: "pad", Type: dataflow.TypeText}})
	r := rand.New(rand.NewPCG(1, 1))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	for range compressedRows {
		pad := make([]byte, 84)
		for i := range pad {
			pad[i] = letters[r.IntN(len(letters))]
		}
		out.AppendRow(dataflow.Row{dataflow.BigInt(r.Int64N(1_000_000)), dataflow.BigInt(1_790_000_000_000_000), dataflow.Text(string(pad))})
	}
	return out
}

// bookLines are lines of Newton's Opticks, which comes with every Go installation.
func bookLines(b *testing.B) *batch.Batch {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatalf("go env GOROOT: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src/testdata/Isaac.Newton-Opticks.txt"))
	if err != nil {
		b.Fatal(err)
	}
	out := batch.NewBatch(dataflow.Schema{{Name: "line", Type: dataflow.TypeText}})
	for _, line := range strings.Split(string(text), "\n")[:compressedRows] {
		out.AppendRow(dataflow.Row{dataflow.Text(strings.TrimRight(line, "\r"))})
	}
	return out
}

// clicks are columns as a web server's log has them: a time, a user, a URL, a status, a duration.
func clicks(*testing.B) *batch.Batch {
	out := batch.NewBatch(dataflow.Schema{
		{Name: "at", Type: dataflow.TypeTimestamp}, {Name: "user_id", Type: dataflow.TypeBigInt}, {Name: "url", Type: dataflow.TypeText},
		{Name: "status", Type: dataflow.TypeBigInt}, {Name: "took", Type: dataflow.TypeDouble},
	})
	r := rand.New(rand.NewPCG(2, 2))
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for range compressedRows {
		at = at.Add(time.Duration(r.IntN(2000)) * time.Microsecond)
		out.AppendRow(dataflow.Row{
			dataflow.Timestamp(at.UnixMicro()), dataflow.BigInt(r.Int64N(100_000)), dataflow.Text(clickURL(r)),
			dataflow.BigInt([]int64{200, 200, 200, 200, 304, 404}[r.IntN(6)]), dataflow.Double(float64(r.IntN(100_000)) / 100),
		})
	}
	return out
}

func clickURL(r *rand.Rand) string {
	page := []string{"product", "category", "search", "cart", "article"}[r.IntN(5)]
	return fmt.Sprintf("https://www.shop.example/%s/%d?utm_source=%s&session=%08x", page, r.IntN(20_000), []string{"mail", "search", "direct"}[r.IntN(3)], r.Uint32())
}

// events are JSON as a stream of one JSONB column takes it.
func events(*testing.B) *batch.Batch {
	out := batch.NewBatch(dataflow.Schema{{Name: "payload", Type: dataflow.TypeJSONB}})
	r := rand.New(rand.NewPCG(3, 3))
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for range compressedRows {
		at = at.Add(time.Duration(r.IntN(2000)) * time.Microsecond)
		out.AppendRow(dataflow.Row{{Type: dataflow.TypeJSONB, Str: fmt.Sprintf(
			`{"action": %q, "amount": %d.%02d, "at": %q, "id": "%08x-%04x", "tags": ["new", "web"], "url": %q, "user": "user%d"}`,
			[]string{"view", "view", "view", "buy", "leave"}[r.IntN(5)], r.IntN(500), r.IntN(100), at.Format(time.RFC3339Nano), r.Uint32(), r.IntN(1<<16), clickURL(r), r.IntN(50_000))}})
	}
	return out
}
