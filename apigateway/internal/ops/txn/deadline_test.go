package txn

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestInTimeTellsTheCause(t *testing.T) {
	late := func(cause error) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return errs.Wrap("test", fmt.Errorf("%w: %w", cause, ctx.Err()))
		}
	}
	at := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	foreign := errs.WrapAs(errs.Unavailable, "store.vet", &store.ForeignError{})
	cases := []struct {
		name    string
		ask     func(context.Context) error
		message string
	}{
		{"no answer of etcd", late(store.ErrUnreachable), "etcd is not reachable"},
		{"a connection that was closed", at(errs.WrapAs(errs.Unavailable, "store.Commit", fmt.Errorf("%w: %w", store.ErrUnreachable, io.EOF))), "etcd is not reachable"},
		{"a view that lags behind", late(view.ErrBehind), "this gateway is behind etcd"},
		{"another etcd", at(foreign), "this gateway's etcd holds the data of another cluster"},
		{"another etcd, when the time is over", late(foreign), "this gateway's etcd holds the data of another cluster"},
		{"an unknown error", at(errs.WrapAs(errs.Unavailable, "store.Commit", io.ErrShortWrite)), errs.MessageOf(nil)},
		{"another wait that is too long", late(io.ErrNoProgress), errs.MessageOf(nil)},
		{"an error with a message of its own", at(errs.New(errs.Unavailable, "templatesvc is away")), "templatesvc is away"},
		{"a conflict", at(errs.WrapAs(errs.Conflict, "store.Commit", io.EOF)), errs.MessageOf(nil)},
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

func TestAChangeThatWaitsTooLongForEarlierOnesIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Committer{Store: store.New(nil, store.Options{})}
		turn := make(chan struct{}, 1)
		turn <- struct{}{}
		o.turns[fleet.ShardOf("lobby")] = turn
		_, err := o.MutateGroup(t.Context(), Actor{}, "lobby", nil)
		if !errs.Is(err, errs.Unavailable) || !strings.HasPrefix(errs.MessageOf(err), `group "lobby" was not changed`) {
			t.Errorf("err = %v", err)
		}
	})
}
