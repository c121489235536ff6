package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// printed is a fake instance with only output.
type printed string

func (printed) Instance(fleet.InstanceID) (*driver.Instance, error) { return nil, nil }
func (p printed) LogPath(fleet.InstanceID) string                   { return string(p) }
func (printed) Logs() *console.Follower {
	return console.NewFollower(slog.New(slog.DiscardHandler))
}

// readerOf reads a log of some text.
func readerOf(t *testing.T, text string) reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return newReader(printed(path))
}

func ask(ctx context.Context, query string) *http.Request {
	return httptest.NewRequest(http.MethodGet, "/v1/instances/aaaaaa/log?"+query, nil).WithContext(ctx)
}

func TestPageIsStreamed(t *testing.T) {
	r := readerOf(t, "one\n\"two\"\x1b[0m\nthree \xff\n")
	for query, want := range map[string]string{
		"lines=9":            `[one "two"` + "\x1b[0m three \ufffd] false 0",
		"lines=2":            `["two"` + "\x1b[0m three \ufffd] true 4",
		"lines=0":            "[] false 22",
		"lines=9&grep=^two":  "[] false 0",
		"lines=9&grep=^.two": `["two"` + "\x1b[0m] false 0",
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, ask(t.Context(), query))
		var got client.Log
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", query, w.Code, w.Body, err)
		}
		texts := []string{}
		for _, l := range got.Lines {
			texts = append(texts, l.Text)
		}
		if s := fmt.Sprint(texts, got.More, got.Before); s != want {
			t.Errorf("%s: %q, want %q", query, s, want)
		}
	}
}

func TestPageCountsLinesOnRequest(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "one": 1, "one\n": 1, "one\ntwo\nthree": 3, strings.Repeat("line\n", 100_000): 100_000,
	} {
		for query, want := range map[string]int64{"lines=1": 0, "lines=1&count=true": want, "lines=1&count=true&before=4&grep=x": want} {
			w := httptest.NewRecorder()
			readerOf(t, text).ServeHTTP(w, ask(t.Context(), query))
			var got client.Log
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Total != want {
				t.Errorf("%d bytes, %s: %d lines, want %d (%v)", len(text), query, got.Total, want, err)
			}
		}
	}
}

func TestHugePatternIsRefusedByField(t *testing.T) {
	for _, text := range []string{`(((a{1,100}){1,100}){1,100})`, `(a{1,100}){1,10}`, `(`} {
		w := httptest.NewRecorder()
		readerOf(t, "a\n").ServeHTTP(w, ask(t.Context(), "grep="+url.QueryEscape(text)))
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "grep") {
			t.Errorf("%s: %d %s", text, w.Code, w.Body)
		}
	}
}

func TestReadsDoNotWaitForSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := readerOf(t, "one\n")
		for range cap(r.searches) { // two running searches hold both slots
			if err := errors.Join(acquire(t.Context(), r.searches), acquire(t.Context(), r.turns)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.serve(httptest.NewRecorder(), ask(t.Context(), "grep=one")); !errs.Is(err, errs.Exhausted) {
			t.Errorf("one more search: %v", err)
		}
		if err := r.serve(httptest.NewRecorder(), ask(t.Context(), "lines=1")); err != nil {
			t.Error(err)
		}
	})
}

func TestConcurrentLogReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := readerOf(t, "one\n")
		for range maxReaders {
			if err := acquire(t.Context(), r.turns); err != nil {
				t.Fatal(err)
			}
		}
		for _, query := range []string{"lines=1", "offset=0"} {
			if err := r.serve(httptest.NewRecorder(), ask(t.Context(), query)); !errs.Is(err, errs.Exhausted) {
				t.Errorf("%s: %v", query, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.serve(httptest.NewRecorder(), ask(ctx, query)); !errs.Is(err, errs.Canceled) {
				t.Errorf("%s of somebody who left: %v", query, err)
			}
		}
		waits := make(chan error)
		go func() { waits <- r.serve(httptest.NewRecorder(), ask(t.Context(), "lines=1")) }()
		synctest.Wait()
		release(r.turns)
		if err := <-waits; err != nil {
			t.Errorf("whoever waited: %v", err)
		}
		if err := r.serve(httptest.NewRecorder(), ask(t.Context(), "lines=1")); err != nil || len(r.turns) != maxReaders-1 {
			t.Errorf("%d read, %v", len(r.turns), err)
		}
	})
}
