package killtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// producerEnv holds a producerJob, as JSON, in the environment of a process of this test that is to be a producer.
const producerEnv = "WEIR_KILLTEST_PRODUCER"

// producerJob says what a producer sends. It sends rows 1, 2, … from the first in every process that it is.
type producerJob struct {
	Addr, Stream, Name string
	Book               string  // path of the text, for the stream lines
	RowsPerSecond      float64 // once it sends what the log does not have yet
}

// producer is a producer in a process of its own, started again after each kill.
type producer struct {
	job     producerJob
	history *history
	ended   func(error) // is told of an end that was not expected

	acked    atomic.Int64 // rows, from the first, that some process had acknowledged
	lives    int
	expected *atomic.Bool // of the present process
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	exited   chan struct{}
	done     chan finalAck // capacity 1: what the producer had sent when it was told to stop
}

type finalAck struct {
	rows  int64
	token string
}

func (p *producer) start() error {
	job, err := json.Marshal(p.job)
	if err != nil {
		return err
	}
	p.lives++
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), producerEnv+"="+string(job))
	cmd.SysProcAttr = dieWithParent()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	expected, exited := new(atomic.Bool), make(chan struct{})
	p.cmd, p.stdin, p.exited, p.expected, p.done = cmd, stdin, exited, expected, make(chan finalAck, 1)
	done := p.done
	go func() {
		defer close(exited)
		p.listen(stdout, done)
		if err := cmd.Wait(); !expected.Load() {
			p.ended(fmt.Errorf("producer %s ended by itself: %w: %s", p.job.Name, err, stderr.String()))
		}
	}()
	return nil
}

// listen takes what the process says until it ends.
func (p *producer) listen(stdout io.Reader, done chan<- finalAck) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var rows int64
		var token string
		switch n, _ := fmt.Sscanf(lines.Text(), "acked %d %s", &rows, &token); n {
		case 1, 2:
		default:
			p.history.log("producer %s says %q", p.job.Name, lines.Text())
			continue
		}
		if rows > p.acked.Load() {
			p.acked.Store(rows)
			p.history.log("producer %s: %d rows acknowledged", p.job.Name, rows)
		}
		if token != "" {
			done <- finalAck{rows, token}
		}
	}
}

// kill ends the process with SIGKILL.
func (p *producer) kill() error {
	p.expected.Store(true)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

// finish has the producer flush and end, and returns how many rows it has sent since its first life, all acknowledged.
func (p *producer) finish() (finalAck, error) {
	p.expected.Store(true)
	if err := p.stdin.Close(); err != nil {
		return finalAck{}, err
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		return finalAck{}, fmt.Errorf("producer %s does not finish", p.job.Name)
	}
	select {
	case f := <-p.done:
		return f, nil
	default:
		return finalAck{}, fmt.Errorf("producer %s ended without its last acknowledgement", p.job.Name)
	}
}

// runProducer is the producer's process: it sends rows until standard input is closed, and says what is acknowledged.
func runProducer(env string) error {
	var job producerJob
	if err := json.Unmarshal([]byte(env), &job); err != nil {
		return err
	}
	ctx := context.Background()
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
		close(stop)
	}()
	c, err := weir.Open(weir.Config{Addrs: []string{job.Addr}})
	if err != nil {
		return err
	}
	defer c.Close()
	makeRow, err := rowMaker(job)
	if err != nil {
		return err
	}
	p, err := c.OpenProducer(ctx, job.Stream, weir.ProducerConfig{Name: job.Name, RetryFor: patience, BatchBytes: 8 << 10, Linger: time.Millisecond})
	if err != nil {
		return fmt.Errorf("open producer: %w", err)
	}
	sent := 0
	for {
		// A burst of a random size, now and then a flush, then a pause that keeps the rate.
		began := time.Now()
		n := 1 + rand.IntN(100)
		skipped := p.Stats().Skipped
		b := batch.NewBatch(p.Schema())
		for i := range n {
			b.AppendRow(makeRow(sent + i))
		}
		if err := p.Append(ctx, b); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		sent += n
		again := p.Stats().Skipped > skipped
		if !again && rand.IntN(4) == 0 {
			if err := p.Flush(ctx); err != nil {
				return fmt.Errorf("flush: %w", err)
			}
			fmt.Printf("acked %d\n", sent)
		}
		pause := time.Duration(float64(n)/job.RowsPerSecond*float64(time.Second)) - time.Since(began)
		if again {
			continue // what the log has already is not sent: catch up, also before the end
		}
		select {
		case <-stop:
			if err := p.Close(ctx); err != nil {
				return fmt.Errorf("close: %w", err)
			}
			fmt.Printf("acked %d %s\n", sent, p.Token())
			return nil
		case <-time.After(pause):
		}
	}
}

// rowMaker returns what makes row i, from 0, of a job.
func rowMaker(job producerJob) (func(i int) dataflow.Row, error) {
	if job.Stream == "orders" {
		return func(i int) dataflow.Row { return orderRow(makeOrder(job.Name, int64(i)+1)) }, nil
	}
	b, err := readBook(job.Book)
	if err != nil {
		return nil, err
	}
	return func(i int) dataflow.Row { return dataflow.Row{dataflow.Text(b.line(i))} }, nil
}

func orderRow(o order) dataflow.Row {
	r := dataflow.Row{dataflow.Text(o.Sender), dataflow.BigInt(o.N), dataflow.NullValue(dataflow.TypeText), dataflow.NullValue(dataflow.TypeBigInt),
		dataflow.NullValue(dataflow.TypeBigInt), dataflow.NullValue(dataflow.TypeTimestamp)}
	if o.Country != nil {
		r[2] = dataflow.Text(*o.Country)
	}
	if o.Item != nil {
		r[3] = dataflow.BigInt(*o.Item)
	}
	if o.Amount != nil {
		r[4] = dataflow.BigInt(*o.Amount)
	}
	if o.Placed != nil {
		r[5] = dataflow.Timestamp(o.Placed.UnixMicro())
	}
	return r
}
