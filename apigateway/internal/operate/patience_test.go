package operate

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestInTime(t *testing.T) {
	own := errs.New(errs.Unavailable, "templatesvc is away")
	cases := []struct {
		name    string
		ask     func(context.Context) error
		message string
	}{
		{"no answer", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "etcd is not reachable"},
		{"a connection that is closed", func(context.Context) error { return errs.As(errs.Unavailable, "store.Commit", io.EOF) }, "etcd is not reachable"},
		{"an error with a message of its own", func(context.Context) error { return own }, "templatesvc is away"},
		{"a conflict", func(context.Context) error { return errs.As(errs.Conflict, "store.Commit", io.EOF) }, errs.MessageOf(nil)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				message := errs.MessageOf(InTime(t.Context(), c.ask))
				if !strings.HasPrefix(message, c.message) {
					t.Errorf("the message is %q, want %q", message, c.message)
				}
			})
		})
	}
}
