package errs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestKindSurvivesWrapping(t *testing.T) {
	origin := errs.Field("portRangeStart", "must be between 1 and 65535")
	err := errs.Wrap("rest.CreateGroup", fmt.Errorf("while reading: %w", errs.Wrap("fleet.Validate", origin)))
	if !errs.Is(err, errs.Invalid) {
		t.Errorf("KindOf = %v, want Invalid", errs.KindOf(err))
	}
	if got := errs.FieldOf(err); got != "portRangeStart" {
		t.Errorf("FieldOf = %q", got)
	}
	if got := errs.MessageOf(err); got != "must be between 1 and 65535" {
		t.Errorf("MessageOf = %q", got)
	}
	if !errors.Is(err, error(origin)) {
		t.Error("the origin is lost")
	}
}

func TestForeignErrorsGetAKind(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want errs.Kind
	}{
		{"cancellation is Canceled", fmt.Errorf("x: %w", context.Canceled), errs.Canceled},
		{"a deadline is Unavailable", context.DeadlineExceeded, errs.Unavailable},
		{"anything else is Internal", errors.New("boom"), errs.Internal},
		{"WrapAs replaces the Kind", errs.WrapAs(errs.Fenced, "op", errors.New("boom")), errs.Fenced},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := errs.KindOf(c.err); got != c.want {
				t.Errorf("KindOf = %v, want %v", got, c.want)
			}
		})
	}
}

func TestNilStaysNil(t *testing.T) {
	if errs.Wrap("op", nil) != nil || errs.WrapAs(errs.Conflict, "op", nil) != nil || errs.Is(nil, errs.Internal) {
		t.Error("wrapping nil made an error")
	}
}

func TestEveryKindHasItsOwnName(t *testing.T) {
	seen := map[string]errs.Kind{}
	for _, k := range errs.Kinds {
		if other, dup := seen[k.String()]; dup {
			t.Errorf("%d and %d share the name %q", k, other, k)
		}
		seen[k.String()] = k
	}
}
