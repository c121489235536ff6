package e2e_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// sse is one server-sent event.
type sse struct{ name, id, data string }

// open requests a stream, from after the event lastID if that is not empty. The stream ends
// when leave is called, when the server closes it, or at the end of the test.
func open(t *testing.T, url, lastID string) (resp *http.Response, leave func()) {
	t.Helper()
	ctx, leave := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err = (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, leave
}

// frames reads a response as server-sent events into a channel. The channel is closed when
// the stream ends.
func frames(t *testing.T, resp *http.Response) <-chan sse {
	t.Helper()
	events := make(chan sse, 100_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		var e sse
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			field, value, _ := strings.Cut(in.Text(), ": ")
			switch field {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data += value
			case "":
				if e != (sse{}) && in.Text() == "" {
					events <- e
					e = sse{}
				}
			}
		}
	}()
	t.Cleanup(func() { _ = resp.Body.Close(); <-done })
	return events
}

// until reads events until one satisfies a condition. ok is false when the stream ends
// before.
func until(t *testing.T, events <-chan sse, what string, is func(sse) bool) (all []sse, ok bool) {
	t.Helper()
	ctx := cluster.Bounded(t)
	for {
		select {
		case e, open := <-events:
			if !open {
				return all, false
			}
			if all = append(all, e); is(e) {
				return all, true
			}
		case <-ctx.Done():
			t.Fatalf("no %s after %d events: %.300v", what, len(all), all)
		}
	}
}
