package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// logInto returns a logger that writes to a ring.
func logInto(r *telemetry.Ring, level slog.Level) *slog.Logger {
	return slog.New(r.Handler(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level})))
}

func messages(records []telemetry.Record) (out []string) {
	for _, r := range records {
		out = append(out, r.Message)
	}
	return out
}

func TestRingRecordHasLoggedFields(t *testing.T) {
	ring := telemetry.NewRing("apigateway/a1", 0)
	before := time.Now()
	logInto(ring, slog.LevelDebug).With("node", "n1").WithGroup("http").With("path", "/x").
		Warn("it failed", "status", 500, "error", errors.New("no route"), slog.Group("from", "ip", "10.0.0.1"))
	all := ring.Last(telemetry.RecordFilter{}, 10)
	if len(all) != 1 {
		t.Fatalf("kept %v", all)
	}
	got := all[0]
	if at := time.UnixMilli(got.TS); at.Before(before.Truncate(time.Millisecond)) || time.UnixMicro(got.Seq).Before(before.Truncate(time.Microsecond)) {
		t.Errorf("ts %d, seq %d, logged after %v", got.TS, got.Seq, before)
	}
	got.Seq, got.TS = 0, 0
	want := telemetry.Record{
		Level: "WARN", Logger: "libs/telemetry_test", Thread: "apigateway/a1", Message: "it failed", Throwable: "no route",
		MDC: map[string]string{"node": "n1", "http.path": "/x", "http.status": "500", "http.from.ip": "10.0.0.1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if ring.Capacity() != telemetry.DefaultKept || ring.Size() != 1 {
		t.Errorf("capacity %d, size %d", ring.Capacity(), ring.Size())
	}
}

func TestRingMasksSecretAttributes(t *testing.T) {
	ring := telemetry.NewRing("x", 10)
	logInto(ring, slog.LevelDebug).With("cluster.secret", "s3cret").Info("m", "token", "s3cret", "adminPassword", "s3cret", "Authorization", "s3cret", "tokenId", "t1")
	got := ring.Last(telemetry.RecordFilter{}, 1)[0]
	if text := fmt.Sprint(got); strings.Contains(text, "s3cret") {
		t.Error(text)
	}
	if got.MDC["tokenId"] != "t1" {
		t.Errorf("more is hidden than must be: %v", got.MDC)
	}
}

func TestRingRespectsLogLevel(t *testing.T) {
	ring := telemetry.NewRing("x", 10)
	log := logInto(ring, slog.LevelInfo)
	log.Debug("not this")
	log.Info("this")
	if got := messages(ring.Last(telemetry.RecordFilter{}, 10)); !cmp.Equal(got, []string{"this"}) {
		t.Errorf("kept %v", got)
	}
}

func TestRingClipsHugeRecords(t *testing.T) {
	ring := telemetry.NewRing("x", 10)
	huge := strings.Repeat("ü", 100_000)
	var attrs []any
	for n := range 100 {
		attrs = append(attrs, fmt.Sprint("a", n), huge)
	}
	logInto(ring, slog.LevelInfo).Info(huge, append(attrs, "error", errors.New(huge))...)
	got := ring.Last(telemetry.RecordFilter{}, 1)[0]
	if n := len(fmt.Sprint(got)); n > 64<<10 || len(got.MDC) > 32 {
		t.Errorf("%d bytes, %d attributes", n, len(got.MDC))
	}
	if !strings.HasSuffix(got.Message, "ü…") {
		t.Errorf("the message ends in %q", got.Message[len(got.Message)-8:])
	}
}

func TestRingDropsOldestRecords(t *testing.T) {
	ring := telemetry.NewRing("x", 3)
	log := logInto(ring, slog.LevelInfo)
	for n := range 5 {
		log.Info(fmt.Sprint(n))
	}
	if got := messages(ring.Last(telemetry.RecordFilter{}, 10)); !cmp.Equal(got, []string{"2", "3", "4"}) || ring.Size() != 3 {
		t.Errorf("kept %v", got)
	}
	if got := messages(ring.Last(telemetry.RecordFilter{}, 2)); !cmp.Equal(got, []string{"3", "4"}) {
		t.Errorf("the last two are %v", got)
	}
}

func TestRecordFilterByLevelAndLogger(t *testing.T) {
	ring := telemetry.NewRing("x", 10)
	log := logInto(ring, slog.LevelDebug)
	log.Debug("d")
	log.Info("i")
	log.Warn("w")
	log.Error("e")
	for _, c := range []struct {
		level, logger string
		want          []string
	}{
		{"", "", []string{"d", "i", "w", "e"}},
		{"trace", "", []string{"d", "i", "w", "e"}},
		{"info", "", []string{"i", "w", "e"}},
		{"Warn", "libs/", []string{"w", "e"}},
		{"ERROR", "libs/telemetry_test", []string{"e"}},
		{"", "apigateway", nil},
	} {
		f, err := telemetry.ParseRecordFilter(c.level, c.logger)
		if got := messages(ring.Last(f, 10)); err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%q %q: %v, %v", c.level, c.logger, got, err)
		}
	}
	if _, err := telemetry.ParseRecordFilter("loud", ""); !errs.Is(err, errs.Malformed) {
		t.Errorf("err = %v", err)
	}
}

// nextOf returns the next messages of a follower, which must be available at once.
func nextOf(t *testing.T, f *telemetry.Follower) (out []string, gap bool) {
	t.Helper()
	records, gap, err := f.Next(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return messages(records), gap
}

func TestFollowerReportsGaps(t *testing.T) {
	ring := telemetry.NewRing("x", 4)
	log, all := logInto(ring, slog.LevelInfo), telemetry.RecordFilter{}
	log.Info("0")
	log.Info("1")
	f, fresh := ring.Follow(all, 0, 1), ring.Follow(all, 0, 0)
	if got, gap := nextOf(t, f); !cmp.Equal(got, []string{"1"}) || gap {
		t.Fatalf("%v, gap %v", got, gap)
	}
	if records, gap, err := f.Next(t.Context(), time.Nanosecond); len(records) > 0 || gap || err != nil {
		t.Fatalf("nothing has come: %v, %v, %v", records, gap, err)
	}
	for n := 2; n < 8; n++ {
		log.Info(fmt.Sprint(n))
	}
	for _, f := range []*telemetry.Follower{f, fresh, ring.Follow(all, 1, 0)} {
		if got, gap := nextOf(t, f); !cmp.Equal(got, []string{"4", "5", "6", "7"}) || !gap {
			t.Fatalf("%v, gap %v", got, gap)
		}
	}
	log.Info("8")
	if got, gap := nextOf(t, f); !cmp.Equal(got, []string{"8"}) || gap {
		t.Fatalf("%v, gap %v", got, gap)
	}
	if got, _ := nextOf(t, ring.Follow(all, 0, 2)); !cmp.Equal(got, []string{"7", "8"}) {
		t.Errorf("the tail is %v", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := f.Next(ended, time.Minute); !errs.Is(err, errs.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestFollowerAheadOfRingReportsGap(t *testing.T) {
	ring := telemetry.NewRing("x", 4)
	log, all := logInto(ring, slog.LevelInfo), telemetry.RecordFilter{}
	log.Info("0")
	ahead := ring.Follow(all, time.Now().Add(time.Hour).UnixMicro(), 0)
	if records, gap, err := ahead.Next(t.Context(), time.Minute); len(records) > 0 || !gap || err != nil {
		t.Fatalf("%v, gap %v, %v", records, gap, err)
	}
	// From another ring that logged later, with the same clock: nothing is missing.
	later := ring.Follow(all, time.Now().UnixMicro(), 0)
	if records, gap, err := later.Next(t.Context(), time.Nanosecond); len(records) > 0 || gap || err != nil {
		t.Fatalf("%v, gap %v, %v", records, gap, err)
	}
	log.Info("1")
	for _, f := range []*telemetry.Follower{ahead, later} {
		if got, gap := nextOf(t, f); !cmp.Equal(got, []string{"1"}) || gap {
			t.Errorf("%v, gap %v", got, gap)
		}
	}
}

func TestFollowerWakesOnNewRecords(t *testing.T) {
	ring := telemetry.NewRing("x", 10)
	log := logInto(ring, slog.LevelInfo)
	f := ring.Follow(telemetry.RecordFilter{Level: "WARN"}, 0, 10)
	woken := make(chan []string, 1)
	go func() {
		records, _, _ := f.Next(t.Context(), time.Minute)
		woken <- messages(records)
	}()
	log.Info("not chosen")
	log.Warn("chosen")
	if got := <-woken; !cmp.Equal(got, []string{"chosen"}) {
		t.Errorf("%v", got)
	}
}

func TestFilterSkipsManyRecords(t *testing.T) {
	ring := telemetry.NewRing("x", 2000)
	log := logInto(ring, slog.LevelInfo)
	f := ring.Follow(telemetry.RecordFilter{Level: "WARN"}, 0, 0)
	for range 1000 {
		log.Info("not chosen")
	}
	log.Warn("chosen")
	if got, gap := nextOf(t, f); !cmp.Equal(got, []string{"chosen"}) || gap {
		t.Errorf("%v, gap %v", got, gap)
	}
}

func TestSeqIncreasesAcrossGoroutines(t *testing.T) {
	ring := telemetry.NewRing("x", 1000)
	log := logInto(ring, slog.LevelInfo)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				log.Info("m")
			}
		})
	}
	all.Wait()
	var last int64
	for _, r := range ring.Last(telemetry.RecordFilter{}, 1000) {
		if r.Seq <= last {
			t.Fatalf("%d after %d", r.Seq, last)
		}
		last = r.Seq
	}
	if ring.Size() != 800 {
		t.Errorf("%d kept", ring.Size())
	}
}
