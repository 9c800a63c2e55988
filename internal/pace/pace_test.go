package pace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/internal/pace"
)

func TestBytesAreLetThroughAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pace.NewLimiter(1 << 20)
		begun := time.Now()
		done := make(chan error, 2)
		for range 2 { // who share it
			go func() {
				for range 80 {
					if err := l.Wait(context.Background(), 64<<10); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 9900*time.Millisecond || took > 10*time.Second {
			t.Fatalf("10 MiB at 1 MiB/s took %v", took)
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := pace.NewLimiter(1).Wait(ctx, 1000); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		none := pace.NewLimiter(0)
		if err := none.Wait(context.Background(), 1<<40); err != nil {
			t.Fatal(err)
		}
		if err := none.Wait(ctx, 1); err == nil {
			t.Fatal("the context has ended")
		}
	})
}
