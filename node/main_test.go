package node_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/internal/testkit/parallel"
)

func TestMain(m *testing.M) {
	parallel.AtOnce(4) // which leaves two processors little to wait for, and elections their time
	goleak.VerifyTestMain(m)
}
