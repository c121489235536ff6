package upstream

import (
	"errors"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
)

func fails(err error) func() (int, error) { return func() (int, error) { return 0, err } }

func TestAfterFailuresNothingIsTried(t *testing.T) {
	b := newBreakers()
	for range tripAfter {
		if _, err := through(b, "n1", "the agent", fails(errs.New(errs.Unavailable, "no answer"))); !errs.Is(err, errs.Unavailable) {
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

func TestTheCallersOwnMistakesTripNothing(t *testing.T) {
	for _, k := range errs.Kinds {
		b := newBreakers()
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
		_, err := through(newBreakers(), "n1", "x", fails(errs.New(k, "no")))
		want := k
		if k == errs.Unauthenticated || k == errs.Denied {
			want = errs.Unavailable
		}
		if got := errs.KindOf(err); got != want {
			t.Errorf("%v came back as %v", k, got)
		}
	}
}

func TestBreakersAreBounded(t *testing.T) {
	b := newBreakers()
	for n := range maxBreakers + 10 {
		b.of(string(rune(n)))
	}
	if len(b.by) > maxBreakers {
		t.Errorf("%d breakers", len(b.by))
	}
}
