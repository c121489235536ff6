package nodeagent_test

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestAgentLogIsReadable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(func(c *nodeagent.Config) {
		taking(c)
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	})
	warnings := telemetry.RecordFilter{Level: "WARN"}
	r, err := s.api().Records(t.Context(), client.RecordQuery{Limit: 100})
	if err != nil || len(r.Records) == 0 || r.Size < len(r.Records) || r.Capacity != telemetry.DefaultKept {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, rec := range r.Records {
		if rec.Thread != "nodeagent/"+string(node) || !strings.HasPrefix(rec.Logger, "nodeagent") && !strings.HasPrefix(rec.Logger, "libs") || rec.Seq == 0 || rec.TS == 0 {
			t.Errorf("%+v", rec)
		}
	}
	if _, err := s.api().Records(t.Context(), client.RecordQuery{RecordFilter: telemetry.RecordFilter{Level: "LOUD"}}); !errs.Is(err, errs.Malformed) {
		t.Errorf("err = %v", err)
	}
	if r, err = s.api().Records(t.Context(), client.RecordQuery{RecordFilter: warnings, Limit: 0}); err != nil || len(r.Records) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAgentLogIsFollowedAndResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ring := telemetry.NewRing("nodeagent/x", 0)
	log := slog.New(ring.Handler(slog.NewTextHandler(io.Discard, nil)))
	s.start(func(c *nodeagent.Config) {
		taking(c)
		c.Log, c.Records = log, ring
	})
	follow := func(q client.RecordQuery) (next func() telemetry.Record) {
		q.Level = "ERROR"
		stream, err := s.api().FollowRecords(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		var left []telemetry.Record
		return func() (r telemetry.Record) {
			t.Helper()
			for len(left) == 0 {
				f, err := stream.Next()
				if err != nil {
					t.Fatal(err)
				}
				left = f.Records
			}
			r, left = left[0], left[1:]
			return r
		}
	}
	for n := range 3 {
		log.Error(fmt.Sprint("test ", n))
	}
	next := follow(client.RecordQuery{Limit: 2})
	first := next()
	if first.Message != "test 1" || next().Message != "test 2" {
		t.Errorf("the first is %+v", first)
	}
	log.Error("test 3")
	if got := next(); got.Message != "test 3" {
		t.Errorf("%+v", got)
	}
	if got := follow(client.RecordQuery{After: first.Seq})(); got.Message != "test 2" {
		t.Errorf("resumed with %+v", got)
	}
	stream, err := s.api().FollowRecords(t.Context(), client.RecordQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	s.stop()
	await.That(t, "the stream ends with the agent", func() string {
		_, err := stream.Next()
		return await.Unless(errs.Is(err, errs.Unavailable), "%v", err)
	})
}
