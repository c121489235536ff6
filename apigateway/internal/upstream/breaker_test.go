package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func newHealth(t *testing.T) *Health {
	t.Helper()
	m := telemetry.NewMetrics(prometheus.NewRegistry(), "test")
	h := NewHealth(m, slog.New(slog.DiscardHandler))
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	return h
}

func fails(err error) func() (int, error) { return func() (int, error) { return 0, err } }

func TestAfterFailuresNothingIsTried(t *testing.T) {
	b := newHealth(t).of[kindAgent]
	for range tripAfter {
		if _, err := through(b, "n1", "the agent", fails(silent)); !errs.Is(err, errs.Unavailable) {
			t.Fatalf("err = %v", err)
		}
	}
	called := false
	_, err := through(b, "n1", "the agent", func() (int, error) { called = true; return 1, nil })
	if called || !errs.Is(err, errs.Unavailable) || errs.MessageOf(err) != "the agent does not answer now: retry in a moment" {
		t.Errorf("called %v, err %v", called, err)
	}
	if v, err := through(b, "n2", "another", func() (int, error) { return 1, nil }); v != 1 || err != nil {
		t.Errorf("another upstream suffers: %v", err)
	}
}

// silent is the error of an upstream that does not respond, away the error of one that reports another
// as unavailable.
var (
	silent = errs.WrapAs(errs.Unavailable, "call", errors.New("connection refused"))
	away   = errs.New(errs.Unavailable, "https://x.example does not answer")
)

func TestAnAnswerAboutSomebodyElseIsToldAndTripsNothing(t *testing.T) {
	b := newHealth(t).of[kindAgent]
	for range 3 * tripAfter {
		if _, err := through(b, "n1", "the agent", fails(away)); !errs.Is(err, errs.Unavailable) || errs.MessageOf(err) != "https://x.example does not answer" {
			t.Fatalf("err = %v", err)
		}
	}
	if v, err := through(b, "n1", "the agent", func() (int, error) { return 1, nil }); v != 1 || err != nil {
		t.Errorf("tripped: %v", err)
	}
}

func TestWhatTakesLongIsNeitherCountedNorInTheWay(t *testing.T) {
	b := newHealth(t).of[kindAgent]
	for range 3 * tripAfter {
		if _, err := beside(b, "n1", "the agent", fails(silent)); errs.MessageOf(err) != "the agent does not answer now: retry in a moment" {
			t.Fatalf("err = %v", err)
		}
	}
	_, err := beside(b, "n1", "the agent", func() (int, error) {
		return through(b, "n1", "the agent", func() (int, error) { return 1, nil }) // call while it is slow
	})
	if err != nil {
		t.Errorf("what is short was refused: %v", err)
	}
	for range tripAfter {
		_, _ = through(b, "n1", "the agent", fails(silent))
	}
	called := false
	_, err = beside(b, "n1", "the agent", func() (int, error) { called = true; return 1, nil })
	if called || !errs.Is(err, errs.Unavailable) {
		t.Errorf("called %v while nothing answers: %v", called, err)
	}
}

func TestTheCallersOwnMistakesTripNothing(t *testing.T) {
	for _, k := range errs.Kinds {
		b := newHealth(t).of[kindAgent]
		for range 3 * tripAfter {
			_, _ = through(b, "n1", "x", fails(errs.New(k, "no")))
		}
		_, err := through(b, "n1", "x", func() (int, error) { return 1, nil })
		if tripped := err != nil; tripped == notItsFault(errs.New(k, "no")) {
			t.Errorf("%v: tripped %v", k, tripped)
		}
	}
	if notItsFault(errors.New("boom")) {
		t.Error("a foreign error counts as the caller's mistake")
	}
}

func TestAnErrorKeepsItsKindUnlessTheGatewayItselfWasRefused(t *testing.T) {
	for _, k := range errs.Kinds {
		_, err := through(newHealth(t).of[kindAgent], "n1", "x", fails(errs.New(k, "no")))
		want := k
		if k == errs.Unauthenticated || k == errs.Denied {
			want = errs.Unavailable
		}
		if got := errs.KindOf(err); got != want {
			t.Errorf("%v came back as %v", k, got)
		}
	}
	_, err := through(newHealth(t).of[kindAgent], "n1", "x", fails(&errs.Error{Kind: errs.Denied, Field: "key", Message: "is not yours"}))
	if !errs.Is(err, errs.Denied) || errs.FieldOf(err) != "key" {
		t.Errorf("what the caller may not do came back as %v", err)
	}
}

func TestBreakersAreBounded(t *testing.T) {
	b := newHealth(t).of[kindAgent]
	for n := range maxBreakers + 10 {
		b.of(string(rune(n)), "x")
	}
	if len(b.by) > maxBreakers {
		t.Errorf("%d breakers", len(b.by))
	}
}

func TestOnlyWhatSurelyWasNotDoneIsToldToBeSo(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"nobody is connected":                   {&errs.Error{Kind: errs.Unavailable, Err: errAway}, true},
		"no connection came to be":              {errs.WrapAs(errs.Unavailable, "call", &url.Error{Op: "Post", Err: refused}), true},
		"a connection broke":                    {errs.WrapAs(errs.Unavailable, "call", &url.Error{Op: "Post", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}), false},
		"it was silent for too long":            {errs.Wrap("call", context.DeadlineExceeded), false},
		"it answers that it cannot":             {errs.New(errs.Conflict, "it does not run"), true},
		"it answers that it failed":             {errs.New(errs.Internal, "a defect"), false},
		"it answers that another is not there":  {away, false},
		"it refuses the gateway, told in words": {inWords("the agent", errs.New(errs.Denied, "no secret")), true},
	} {
		if got := NotDone(inWords("the agent", c.err)); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	b := newHealth(t).of[kindAgent]
	for range tripAfter {
		_, _ = through(b, "n1", "the agent", fails(silent))
	}
	if _, err := through(b, "n1", "the agent", fails(silent)); !NotDone(err) {
		t.Errorf("what was not even tried: %v", err)
	}
}
