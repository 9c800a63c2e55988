package gateway

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// A proxy takes a connection for idle on which nothing comes; what comes when nothing happens must be no event.
func TestAWatchWithoutEventsSendsACommentAtEachHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, received, done := httptest.NewRecorder(), make(chan watchMessage), make(chan struct{})
		go func() {
			defer close(done)
			writeWatch(ctx, w, received)
		}()
		comments := func() int {
			synctest.Wait()
			return strings.Count(w.Body.String(), ":\n\n")
		}
		expect := func(when string, want int) {
			t.Helper()
			if got := comments(); got != want {
				t.Fatalf("%s: %d comments in %q", when, got, w.Body)
			}
		}
		expect("at the start", 0)
		<-time.After(heartbeat - time.Millisecond)
		expect("just before a heartbeat", 0)
		<-time.After(time.Millisecond)
		expect("at the first heartbeat", 1)
		<-time.After(heartbeat)
		expect("at the second", 2)
		<-time.After(heartbeat / 2)
		received <- watchMessage{m: &weirv1.WatchResponse{}}
		<-time.After(heartbeat - time.Millisecond)
		expect("less than a heartbeat after a message", 2)
		<-time.After(time.Millisecond)
		expect("a heartbeat after a message", 3)
		if got := w.Header().Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("the content type is %q", got)
		}
		cancel()
		<-done
		if strings.Contains(w.Body.String(), "event:") {
			t.Fatalf("an event was made up: %q", w.Body)
		}
	})
}
