package artifacts

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// host is an HTTP server that delays its answers until a test releases them.
type host struct {
	asked  int
	answer chan struct{}
}

func (h *host) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked++
	select {
	case <-h.answer:
		return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(strings.NewReader("jar")), Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestConcurrentPinsOfAURLShareADownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Config{Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		h := &host{answer: make(chan struct{})}
		s.http.Transport = h
		type result struct {
			content content.Content
			err     error
		}
		pin := func(ctx context.Context) <-chan result {
			out := make(chan result, 1)
			go func() {
				c, err := s.Pin(ctx, "http://host/jar")
				out <- result{c, err}
			}()
			synctest.Wait()
			return out
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := pin(ctx), pin(t.Context()), pin(t.Context())
		if h.asked != 1 {
			t.Errorf("the host was asked %d times", h.asked)
		}
		cancel()
		if got := <-first; !errs.Is(got.err, errs.Canceled) {
			t.Errorf("the call that was canceled: %+v", got)
		}
		synctest.Wait()
		if h.asked != 2 {
			t.Errorf("after the first gave up, the host was asked %d times", h.asked)
		}
		close(h.answer)
		if a, b := <-second, <-third; a.err != nil || b.err != nil || a.content.SHA256 != b.content.SHA256 || a.content.Size != 3 {
			t.Errorf("the others got %+v and %+v", a, b)
		}
	})
}
