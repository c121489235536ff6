package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// replica starts a server with a handler and returns its URL.
func replica(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// mute returns a handler that sends begin, or nothing, and then waits until the client
// disconnects.
func mute(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if begin != "" {
			_, _ = io.WriteString(w, begin)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func clientOf(t *testing.T, patience time.Duration, urls ...string) *client.Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return client.New(client.Config{
		Resolve: func() []string { return urls }, Secret: "s", Patience: patience, HTTP: &http.Client{Transport: transport},
	})
}

// all reads content to its end.
func all(body io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	return string(b), err
}

const short = 50 * time.Millisecond

func TestAReplicaThatSaysNothingIsLeftForAnother(t *testing.T) {
	c := clientOf(t, short, replica(t, mute("")), replica(t, says("content")))
	for range 20 {
		if got, err := all(c.Blob(t.Context(), "x")); err != nil || got != "content" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestAReplicaThatStopsInTheMiddleIsAskedLastAfterwards(t *testing.T) {
	c := clientOf(t, short, replica(t, mute("half")), replica(t, says("content")))
	failures := 0
	for range 20 {
		got, err := all(c.Manifest(t.Context(), "x"))
		switch {
		case err == nil && got == "content":
		case errs.Is(err, errs.Unavailable) && strings.Contains(err.Error(), "nothing for"):
			failures++
		default:
			t.Fatalf("%q, %v", got, err)
		}
	}
	if failures > 1 {
		t.Errorf("it was preferred %d times", failures)
	}
}

func TestOnlyASilentReplicaIsUnavailable(t *testing.T) {
	c := clientOf(t, short, replica(t, mute("")))
	if _, err := all(c.Blob(t.Context(), "x")); !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
	if _, err := all(clientOf(t, short).Blob(t.Context(), "x")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("without any: %v", err)
	}
}

func TestWhoGivesUpWaitsForNoPatience(t *testing.T) {
	c := clientOf(t, time.Hour, replica(t, mute("half")))
	ctx, cancel := context.WithCancel(t.Context())
	body, err := c.Blob(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.ReadFull(body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := body.Read(make([]byte, 1)); err == nil {
		t.Error("there was more")
	}
}

func TestWhatIsCompressedOnTheWayIsReadAsItIs(t *testing.T) {
	text := strings.Repeat("text ", 100_000)
	c := clientOf(t, time.Minute, replica(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "zstd" {
			t.Errorf("it accepts %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "zstd")
		enc, err := zstd.NewWriter(w)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(enc, bytes.NewReader([]byte(text)))
		_ = enc.Close()
	}))
	for range 3 { // the second time with a pooled decoder
		if got, err := all(c.Blob(t.Context(), "x")); err != nil || got != text {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

func TestEachReplicaIsToldWhatIsSuspect(t *testing.T) {
	var told atomic.Int32
	tell := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/blobs/abc/suspect" {
			told.Add(1)
		}
		_, _ = io.WriteString(w, "{}")
	}
	c := clientOf(t, time.Minute, replica(t, tell), "http://127.0.0.1:1", replica(t, tell))
	if err := c.Suspect(t.Context(), "abc"); err != nil || told.Load() != 2 {
		t.Errorf("%d told, %v", told.Load(), err)
	}
	if err := clientOf(t, time.Minute, "http://127.0.0.1:1").Suspect(t.Context(), "abc"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("with nobody there: %v", err)
	}
}

func TestAReplicaWhoseDiskIsFullIsLeftForAnother(t *testing.T) {
	const told = "the disk of blobs.dir is full"
	full := func(w http.ResponseWriter, _ *http.Request) {
		wire.Encode(w, wire.Internal, "", errs.New(errs.Exhausted, told))
	}
	missing := func(w http.ResponseWriter, _ *http.Request) {
		wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "no blob x"))
	}
	well, alone := clientOf(t, time.Minute, replica(t, full), replica(t, says("content"))), clientOf(t, time.Minute, replica(t, full), replica(t, missing))
	for range 20 {
		for what, open := range map[string]func(*client.Client) (io.ReadCloser, error){
			"a blob":      func(c *client.Client) (io.ReadCloser, error) { return c.Blob(t.Context(), "x") },
			"an artifact": func(c *client.Client) (io.ReadCloser, error) { return c.Artifact(t.Context(), "x") },
		} {
			if got, err := all(open(well)); err != nil || got != "content" {
				t.Fatalf("%s: %q, %v", what, got, err)
			}
			if _, err := all(open(alone)); !errs.Is(err, errs.Exhausted) || errs.MessageOf(err) != told {
				t.Fatalf("%s that nobody else has: %v", what, err)
			}
		}
	}
}
