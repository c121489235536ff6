package orrery

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// collect reads events up to one with an ID.
func collect(t *testing.T, c *Client, o EventsOptions, last string) (all []Event) {
	t.Helper()
	for e, err := range c.Events(bounded(t), o) {
		if err != nil {
			t.Fatalf("after %d events: %v", len(all), err)
		}
		if all = append(all, e); e.ID == last {
			break
		}
	}
	return all
}

// ids returns the IDs of events.
func ids(events []Event) string {
	var all []string
	for _, e := range events {
		all = append(all, e.ID)
	}
	return strings.Join(all, " ")
}

// sendFrames answers a request with a text, and then ends, or holds the connection.
func sendFrames(text string, last bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin(w)
		send(w, text)
		if last {
			hold(r)
		}
	}
}

// recorded keeps the requests to a handler.
func recorded(next http.HandlerFunc) (http.HandlerFunc, <-chan *http.Request) {
	requests := make(chan *http.Request, 100)
	return func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		next(w, r)
	}, requests
}

func TestAnEventHasItsFields(t *testing.T) {
	t.Parallel()
	handler, requests := recorded(sendFrames("event: connected\ndata: {}\n\n"+
		"event: message\nid: 7-1\ndata: {\"type\":\"GROUP_CREATED\",\"sequence\":7,\"groupName\":\"lobby\"}\n\n"+
		"event: message\ndata: {\"type\":\"NODE_CACHE_STATUS\",\"timestamp\":\"2026-01-02T15:04:05.5Z\"}\n\n"+
		"event: later\ndata: not for this client\n\n"+
		"event: message\nid: 8\ndata: {\"type\":\"X\",\"sequence\":8,\"timestamp\":12}\n\n", true))
	got := collect(t, connect(t, serve(t, handler)), EventsOptions{Types: []string{"A", "B:C"}, Group: "lobby", After: "5"}, "8")
	if r := <-requests; r.URL.Path != "/api/v1/events/stream" || r.URL.RawQuery != "group=lobby&types=A%2CB%3AC" ||
		r.Header.Get("Last-Event-ID") != "5" || r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("requested %s with %v", r.URL, r.Header)
	}
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	if e := got[0]; e.Type != "GROUP_CREATED" || e.ID != "7-1" || e.Sequence != 7 || !e.Time.IsZero() ||
		string(e.Data) != `{"type":"GROUP_CREATED","sequence":7,"groupName":"lobby"}` {
		t.Errorf("%+v", e)
	}
	if e := got[1]; e.ID != "" || e.Sequence != 0 || !e.Time.Equal(time.Date(2026, 1, 2, 15, 4, 5, 5e8, time.UTC)) {
		t.Errorf("a live event is %+v", e)
	}
	if e := got[2]; e.ID != "8" || !e.Time.IsZero() {
		t.Errorf("an event with another timestamp is %+v", e)
	}
}

func TestAStreamThatBeganNowResumesWhereItBegan(t *testing.T) {
	t.Parallel()
	handler, _ := script(
		sendFrames("event: connected\ndata: {\"latestSequence\":9,\"clusterId\":\"c1\"}\n\n", false),
		sendFrames("event: connected\ndata: {\"latestSequence\":12,\"clusterId\":\"c1\"}\n\nid: 10\ndata: {}\n\n", true))
	handler, requests := recorded(handler)
	var steps []string
	got := collect(t, connect(t, serve(t, handler)), EventsOptions{
		OnConnect: func() { steps = append(steps, "connected") }, OnReconnect: func(error) { steps = append(steps, "lost") },
	}, "10")
	if ids(got) != "10" || !slices.Equal(steps, []string{"connected", "lost", "connected"}) {
		t.Errorf("%s after %v", ids(got), steps)
	}
	if r := <-requests; r.Header.Get("Last-Event-ID") != "" || r.URL.RawQuery != "" {
		t.Errorf("first requested %s with %v", r.URL, r.Header)
	}
	if r := <-requests; r.Header.Get("Last-Event-ID") != "9" || r.URL.RawQuery != "clusterId=c1" {
		t.Errorf("then requested %s with %v", r.URL, r.Header)
	}
}

func TestRepeatedEventsAreDropped(t *testing.T) {
	t.Parallel()
	handler, _ := script(
		sendFrames("id: 10-1\ndata: {}\n\nid: 10-2\ndata: {}\n\nid: 10-2\ndata: {}\n\n: keep-alive\nid: 12\n\n", false),
		sendFrames("id: 10-2\ndata: {}\n\nid: 11\ndata: {}\n\nid: 12\ndata: {}\n\nid: 13-1\ndata: {}\n\ndata: {}\n\nid: odd\ndata: {}\n\nid: odd\ndata: {}\n\nid: 13-2\ndata: {}\n\n", true))
	got := collect(t, connect(t, serve(t, handler)), EventsOptions{After: "10-1"}, "13-2")
	if ids(got) != "10-2 13-1  odd 13-2" {
		t.Errorf("got %q", ids(got))
	}
}

func TestAfterAResyncEventsContinueAtItsPosition(t *testing.T) {
	t.Parallel()
	resync := "event: message\nid: 5\ndata: {\"type\":\"RESYNC_REQUIRED\",\"sequence\":5}\n\n"
	handler, _ := script(
		sendFrames("event: connected\ndata: {\"clusterId\":\"old\"}\n\nid: 100\ndata: {}\n\n", false),
		// The gateway of a restored cluster is lost before it said that events are missing.
		sendFrames("event: connected\ndata: {\"clusterId\":\"new\"}\n\n"+resync[:20], false),
		sendFrames("event: connected\ndata: {\"clusterId\":\"new\"}\n\n"+resync+"id: 6\ndata: {}\n\n", false),
		sendFrames("event: connected\ndata: {\"clusterId\":\"new\"}\n\nid: 7\ndata: {}\n\n", true))
	handler, requests := recorded(handler)
	got := collect(t, connect(t, serve(t, handler)), EventsOptions{}, "7")
	if ids(got) != "100 5 6 7" || got[1].Type != ResyncRequired || got[1].Sequence != 5 {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"", "100 old", "100 old", "6 new"} {
		r := <-requests
		if asked := strings.TrimSpace(r.Header.Get("Last-Event-ID") + " " + r.URL.Query().Get("clusterId")); asked != want {
			t.Errorf("asked for %q, want %q", asked, want)
		}
	}
}

func TestAnEventThatIsNoObjectEndsTheStream(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{"event 3 is not": "id: 3\ndata: {cut\n\n", "does not begin": "event: connected\ndata: x\n\n"} {
		for _, err := range connect(t, serve(t, sendFrames(text, true))).Events(bounded(t), EventsOptions{}) {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v", err)
			}
		}
	}
}
