package weir_test

import (
	"context"
	"fmt"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
)

// A producer with a name sends its rows exactly once, also when the process is killed and runs again.
func ExampleClient_OpenProducer() {
	ctx := context.Background()
	c, err := weir.Dial("127.0.0.1:7711")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	p, err := c.OpenProducer(ctx, "lines", weir.ProducerConfig{Name: "book"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, line := range []string{"Call me Ishmael.", "Some years ago"} {
		if err := p.AppendRow(ctx, dataflow.Row{dataflow.Text(line)}); err != nil {
			fmt.Println(err)
			break
		}
	}
	if err := p.Close(ctx); err != nil { // waits until every row is on disk
		fmt.Println(err)
		return
	}
	// Read what counts the rows, once it does.
	a, err := c.Get(ctx, "wordcount.counts", weir.Key("ishmael"), weir.ReadOptions{MinToken: p.Token()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(a.Row), "as of cut", a.Cut.GetCheckpointId())
}
