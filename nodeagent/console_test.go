package nodeagent_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// watcher reads a console continuously, whichever agent serves it.
type watcher struct {
	s    *site
	id   fleet.InstanceID
	next int64
	text await.Text
	end  chan client.End
	// skipped is to be read after end.
	skipped int64
}

// watch follows a console from its beginning until the instance ends.
func (s *site) watch(id fleet.InstanceID) *watcher {
	w := &watcher{s: s, id: id, end: make(chan client.End, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil && !w.once(ctx) { // each turn waits for an agent's answer
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return w
}

// once reads one stream and reports whether it reached the instance's end.
func (w *watcher) once(ctx context.Context) bool {
	agent, err := w.s.apiUntil(ctx)
	if err != nil {
		return false
	}
	in, err := agent.Follow(ctx, w.id, client.Place{Offset: w.next})
	if err != nil {
		return false
	}
	defer in.Close()
	for {
		f, err := in.Next()
		switch {
		case err != nil:
			return false
		case f.End != nil:
			w.end <- *f.End
			return true
		case f.Skipped != nil:
			w.skipped += f.Skipped.Lines
		}
		if f.Next > 0 || len(f.Data) > 0 {
			if f.From != w.next {
				w.s.t.Errorf("a frame from %d follows %d", f.From, w.next)
			}
			w.next = f.Next
		}
		_, _ = w.text.Write(f.Data)
	}
}

func (w *watcher) ended() client.End {
	w.s.t.Helper()
	select {
	case e := <-w.end:
		return e
	case <-time.After(await.Patience):
		w.s.t.Fatalf("no end; the console shows %.200q", w.text.String())
		return client.End{}
	}
}

func TestFollowReportsEndAndReason(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.online(s.id(1), basic("echo hello; read line; echo \"got $line\"; printf unfinished; exit 3"))
	w := s.watch(s.id(1))
	await.That(t, "the first line", func() string { return await.Unless(w.text.String() == "hello\n", "%q", w.text.String()) })
	if err := s.api().WriteLine(t.Context(), s.id(1), "go"); err != nil {
		t.Fatal(err)
	}
	end := w.ended()
	if end.State != fleet.Crashed || end.ExitCode == nil || *end.ExitCode != 3 || w.text.String() != "hello\ngot go\nunfinished" {
		t.Errorf("%+v after %q", end, w.text.String())
	}
	if again := s.watch(s.id(1)).ended(); again.State != fleet.Crashed {
		t.Errorf("who comes later is told %+v", again)
	}
	if _, err := s.api().Follow(t.Context(), "zzzzzz", client.Place{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown instance: %v", err)
	}
}

func TestFollowMissesNothingAcrossAgents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	s.online(s.id(1), basic("n=0; while [ $n -lt 20000 ]; do n=$((n+1)); echo $n; done; read stop"))
	w := s.watch(s.id(1))
	for range 3 {
		s.stop()
		s.start(nil)
	}
	s.stop()
	s.start(taking)
	await.That(t, "the last line", func() string {
		text := w.text.String()
		return await.Unless(strings.HasSuffix(text, "\n20000\n"), "%d bytes", len(text))
	})
	var want strings.Builder
	for n := range 20000 {
		fmt.Fprintln(&want, n+1)
	}
	if w.text.String() != want.String() {
		t.Error("lines are missing, or came twice")
	}
}

func TestOutputFloodSlowsNeitherServerNorAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.online(s.id(1), basic("read go; yes 0123456789 | head -n 3000000; echo done"))
	w := s.watch(s.id(1))
	if err := s.api().WriteLine(t.Context(), s.id(1), "go"); err != nil {
		t.Fatal(err)
	}
	end := w.ended()
	lines := int64(strings.Count(w.text.String(), "\n"))
	if end.State != fleet.Stopped || lines+w.skipped != 3_000_001 || !strings.HasSuffix(w.text.String(), "\ndone\n") {
		t.Errorf("%d lines shown, %d left out, %+v", lines, w.skipped, end)
	}
	if !slices.Contains(strings.Split(w.text.String(), "\n"), "0123456789") {
		t.Error("nothing of the flood was shown")
	}
}

func TestSlowViewersDoNotBlockServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	const lines = 3_000_000
	s.online(s.id(1), basic(fmt.Sprintf("read go; yes 0123456789 | head -n %d; echo done", lines)))
	var stuck []*client.Stream[client.Frame]
	for range 4 {
		in, err := s.api().Follow(t.Context(), s.id(1), client.Place{})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if f, err := in.Next(); err != nil || f.Next != 0 {
			t.Fatalf("%+v, %v", f, err)
		}
		stuck = append(stuck, in)
	}
	if err := s.api().WriteLine(t.Context(), s.id(1), "go"); err != nil {
		t.Fatal(err)
	}
	s.awaitState(s.id(1), 1, fleet.Stopped) // all output is written and none of it was read
	for n, in := range stuck {
		var seen, skipped, next int64
		for {
			f, err := in.Next()
			if err != nil || f.From != next {
				t.Fatalf("viewer %d: a frame from %d after %d, %v", n, f.From, next, err)
			}
			if f.End != nil {
				break
			}
			if f.Skipped != nil {
				skipped += f.Skipped.Lines
			}
			seen += int64(bytes.Count(f.Data, []byte{'\n'}))
			next = f.Next
		}
		if skipped == 0 || seen+skipped != lines+1 {
			t.Errorf("viewer %d: %d lines shown, %d left out", n, seen, skipped)
		}
	}
}
