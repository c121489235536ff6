package exit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
)

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"no error", nil, exit.OK},
		{"any error", errors.New("x"), exit.Failed},
		{"a code", exit.With(exit.Conflict, errors.New("x"), ""), exit.Conflict},
		{"a hint keeps the code below it", exit.Hint(fmt.Errorf("y: %w", exit.With(exit.Conflict, errors.New("x"), "")), "do it"), exit.Conflict},
		{"a hint keeps the kind of the refusal", exit.Hint(&orrery.Error{Status: 403}, "do it"), exit.Denied},
		{"422", &orrery.Error{Status: 422}, exit.Failed},
		{"412", &orrery.Error{Status: 412}, exit.Conflict},
		{"503", &orrery.Error{Status: 503}, exit.Unavailable},
		{"no gateway", &orrery.UnreachableError{Err: errors.New("x")}, exit.Unavailable},
		{"a gateway that does not accept connections", &orrery.UnreachableError{Err: context.DeadlineExceeded}, exit.Unavailable},
		{"the end of --timeout", fmt.Errorf("x: %w", context.DeadlineExceeded), exit.TimedOut},
		{"Ctrl-C", fmt.Errorf("x: %w", context.Canceled), exit.Interrupted},
	} {
		if got := exit.CodeOf(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestHints(t *testing.T) {
	inner := exit.With(exit.NotFound, errors.New("x"), "inner")
	for _, c := range []struct {
		err  error
		want string
	}{
		{inner, "inner"},
		{exit.With(exit.Conflict, inner, ""), "inner"},
		{exit.Hint(inner, "outer"), "outer"},
		{exit.Explain(inner, "nothing was changed"), "nothing was changed; inner"},
		{exit.Explain(errors.New("x"), "nothing was changed"), "nothing was changed"},
		{&orrery.Error{Status: 401}, "log in: orrery login"},
		{&orrery.Error{Status: 404, Message: "there is no such route"}, "the server is of another release than this program: orrery version shows both"},
		{&orrery.Error{Status: 404, Message: "there is no group x"}, ""},
	} {
		if got := exit.HintOf(c.err); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
