package main

import (
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// columnsText writes columns as in CREATE STREAM.
func columnsText(cols []*weirv1.Column) string { return wire.Schema(cols).String() }
