package progress_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// server speaks the part of the API that following needs: the event stream and one instance.
type server struct {
	*httptest.Server
	// script has the states of the instance. Each read takes the next one and sends an event; the last one stays.
	mu     sync.Mutex
	script []string
	events chan string
}

func newServer(t *testing.T, script ...string) *server {
	s := &server{script: script, events: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/events/stream", s.stream)
	mux.HandleFunc("GET /api/v1/instances/{name}", s.instance)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: connected\ndata: {\"latestSequence\":1,\"clusterId\":\"c\"}\n\n")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-s.events:
			fmt.Fprint(w, event)
			w.(http.Flusher).Flush()
		}
	}
}

func (s *server) instance(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.script[0]
	if len(s.script) > 1 {
		s.script = s.script[1:]
		s.events <- fmt.Sprintf("id: %d\ndata: {\"type\":\"INSTANCE_STATE_CHANGED\",\"instanceId\":\"lobby-1\"}\n\n", 100-len(s.script))
	}
	w.Header().Set("Content-Type", "application/json")
	if row == "" {
		w.WriteHeader(http.StatusNotFound)
		row = `{"error":{"code":"NOT_FOUND","message":"there is no instance lobby-1"}}`
	}
	fmt.Fprint(w, row)
}

func row(state, rest string) string {
	return fmt.Sprintf(`{"id":"lobby-1","uid":"abc123","state":%q,"generation":1%s}`, state, rest)
}

// follow follows lobby-1 and returns what it printed.
func follow(ctx context.Context, t *testing.T, url string, until progress.Condition) (output.Row, string, error) {
	var errors bytes.Buffer
	a := &app.App{Err: &errors, Env: func(string) string { return "" }}
	client, err := orrery.New(orrery.Config{Addresses: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := progress.One(ctx, a, client, progress.Options{
		Targets: []progress.Target{{Kind: kinds.Get("instance"), Name: "lobby-1", Until: until}},
		Goal:    "running", Afterwards: "the start continues",
	})
	return got, errors.String(), err
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestFollowsEventsUntilTheCondition(t *testing.T) {
	s := newServer(t, row("SCHEDULED", ""), row("STARTING", `,"message":"it starts"`), row("RUNNING", ""))
	got, printed, err := follow(bounded(t), t, s.URL, progress.Running(true))
	if err != nil || gjson.GetBytes(got, "state").String() != "RUNNING" {
		t.Fatalf("%s, %v", got, err)
	}
	if want := "instance lobby-1: SCHEDULED\ninstance lobby-1: STARTING: it starts\n"; printed != want {
		t.Errorf("printed %q, want %q", printed, want)
	}
}

func TestEndsWhenTheConditionIsImpossible(t *testing.T) {
	for name, c := range map[string]struct {
		script []string
		until  progress.Condition
		want   string
		code   int
	}{
		"crashed":          {[]string{row("STARTING", ""), row("CRASHED", `,"message":"it exited with code 3"`)}, progress.Running(true), "instance lobby-1 crashed: it exited with code 3", exit.Failed},
		"frozen":           {[]string{row("CRASHED", `,"frozen":true`)}, progress.Running(false), "instance lobby-1 crashed", exit.Failed},
		"stopped":          {[]string{row("STOPPED", `,"desired":"stopped","message":"a user requested it"`)}, progress.Running(false), "is stopped: a user requested it", exit.Failed},
		"deleted":          {[]string{row("STOPPING", ""), ""}, progress.Running(false), "instance lobby-1 was deleted", exit.NotFound},
		"never there":      {[]string{""}, progress.Running(false), "there is no instance lobby-1", exit.NotFound},
		"older generation": {[]string{row("RUNNING", ""), row("STOPPED", `,"desired":"stopped"`)}, progress.RunningSince(2), "is stopped", exit.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := follow(bounded(t), t, newServer(t, c.script...).URL, c.until)
			if err == nil || !strings.Contains(err.Error(), c.want) || exit.CodeOf(err) != c.code {
				t.Errorf("got %v (code %d), want %q (code %d)", err, exit.CodeOf(err), c.want, c.code)
			}
		})
	}
}

func TestDeletedIsACondition(t *testing.T) {
	s := newServer(t, row("STOPPED", ""), "")
	if got, _, err := follow(bounded(t), t, s.URL, progress.Deleted()); err != nil || got != nil {
		t.Errorf("%s, %v", got, err)
	}
}

func TestTheEndOfTheContextNamesTheLastState(t *testing.T) {
	s := newServer(t, row("STARTING", `,"message":"it starts"`))
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := follow(ctx, t, s.URL, func(ctx context.Context, row output.Row) progress.Step {
		time.AfterFunc(0, cancel)
		return progress.Running(true)(ctx, row)
	})
	if exit.CodeOf(err) != exit.Interrupted {
		t.Errorf("code %d of %v", exit.CodeOf(err), err)
	}
	if hint, want := exit.HintOf(err), "the last state: instance lobby-1: STARTING: it starts; the start continues"; hint != want {
		t.Errorf("hint %q, want %q", hint, want)
	}
}

func TestGivesUpIfTheServerRefusesEvents(t *testing.T) {
	for status, code := range map[int]int{401: exit.Denied, 403: exit.Denied, 503: exit.Unavailable} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer s.Close()
		if _, _, err := follow(bounded(t), t, s.URL, progress.Running(true)); exit.CodeOf(err) != code {
			t.Errorf("%d: code %d of %v, want %d", status, exit.CodeOf(err), err, code)
		}
	}
}

// writerFunc is an io.Writer.
type writerFunc func(string)

func (f writerFunc) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

func TestSaysThatTheConnectionIsLost(t *testing.T) {
	s := newServer(t, row("STARTING", ""))
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	said := ""
	a := &app.App{Env: func(string) string { return "" }, Err: writerFunc(func(text string) {
		if strings.Contains(text, "connection lost") {
			said = text
			cancel()
		}
	})}
	client, err := orrery.New(orrery.Config{Addresses: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = progress.One(ctx, a, client, progress.Options{
		Targets: []progress.Target{{Kind: kinds.Get("instance"), Name: "lobby-1", Until: func(context.Context, output.Row) progress.Step {
			_ = s.Listener.Close()
			s.CloseClientConnections()
			return progress.Step{Text: "STARTING"}
		}}},
		Goal: "running",
	})
	if said == "" || !strings.Contains(exit.HintOf(err), "before the connection was lost") {
		t.Errorf("it said %q, and ended with %v, hint %q", said, err, exit.HintOf(err))
	}
}

func TestTheProgressOfAMoveNamesWhatTheCopyDoes(t *testing.T) {
	for move, want := range map[string]string{
		`{"id":"m","step":"STOPPING"}`: "STOPPING",
		`{"id":"m","step":"COPYING","copyState":"LISTING","bytesTotal":3145728,"message":"node a lists and hashes the files"}`:                         "COPYING, 3 MiB hashed: node a lists and hashes the files",
		`{"id":"m","step":"COPYING","copyState":"FETCHING","bytesDone":1048576,"bytesTotal":3145728}`:                                                  "COPYING, 1 MiB of 3 MiB copied",
		`{"id":"m","step":"COPYING","copyState":"FETCHING","bytesDone":3145728,"bytesTotal":3145728,"message":"node b flushes the files to its disk"}`: "COPYING, 3 MiB of 3 MiB copied: node b flushes the files to its disk",
	} {
		if got := progress.Moved("m")(t.Context(), output.Row(`{"id":"world-1","move":`+move+`}`)); got.Text != want {
			t.Errorf("%s is shown as %q, want %q", move, got.Text, want)
		}
	}
}
