package main

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// columnsText writes columns as in CREATE STREAM.
func columnsText(cols []*weirv1.Column) string { return wire.Schema(cols).String() }

// timeText writes a time as the server's answers do; - for none.
func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

// printEach writes one message per line of JSON.
func printEach[M proto.Message](c *cli, list []M) error {
	for _, m := range list {
		if err := c.printJSON(m); err != nil {
			return err
		}
	}
	return nil
}
