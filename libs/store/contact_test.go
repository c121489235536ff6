package store_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// lines is a log.
type lines struct{ proctest.Buffer }

// saying waits until a text is logged and checks that it is logged once.
func (l *lines) saying(t *testing.T, text string) {
	t.Helper()
	await.That(t, "the log saying "+text, func() string {
		return await.Unless(strings.Contains(l.String(), text), "%s", l)
	})
	if n := strings.Count(l.String(), text); n != 1 {
		t.Errorf("said %d times:\n%s", n, l.String())
	}
}

type deaf struct{}

func (deaf) Reset([]store.KeyValue, int64) {}
func (deaf) Apply([]store.Change, int64)   {}

func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	log := &lines{}
	c, err := store.Dial([]string{etcd.Endpoint}, store.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, prefix := range []string{keys.Groups().String(), keys.Users().String()} {
		running.Go(func() { _ = c.Follow(t.Context(), prefix, deaf{}) })
	}
	if _, away := c.Away(); away {
		t.Error("away from the beginning")
	}
	before := time.Now()
	etcd.Stop()
	log.saying(t, "etcd is not reachable")
	if !strings.Contains(log.String(), etcd.Endpoint) {
		t.Errorf("the endpoint is not named:\n%s", log)
	}
	if since, away := c.Away(); !away || since.Before(before) {
		t.Errorf("away %v since %v, stopped at %v", away, since, before)
	}
	etcd.Restart(t)
	log.saying(t, "etcd is reachable again")
	if _, away := c.Away(); away {
		t.Error("away though it is back")
	}
	log.saying(t, "etcd is not reachable")
}

func TestEtcdLostWhileOpeningWatchIsAway(t *testing.T) {
	t.Parallel()
	for name, connected := range map[string]bool{
		"no connection for the stream":                false,
		"the connection lost before the first answer": true,
	} {
		t.Run(name, func(t *testing.T) {
			c := storetest.New(t)
			if _, err := c.Join(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			back := make(chan struct{})
			waits := func(ctx context.Context) error { // waits for a connection, like gRPC
				select {
				case <-back:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			var opening sync.WaitGroup
			opening.Go(func() {
				err := c.OpenWatch(t.Context(), func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
					if !connected {
						if err := waits(ctx); err != nil {
							return nil, err
						}
					}
					return &waiting{ctx: ctx, first: waits}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			await.That(t, "etcd away", func() string {
				_, away := c.Away()
				return await.Unless(away, "not away")
			})
			close(back)
			opening.Wait()
			if _, away := c.Away(); away {
				t.Error("away though it is back")
			}
		})
	}
}

// waiting is a stream that waits for its first response.
type waiting struct {
	grpc.ClientStream
	ctx   context.Context
	first func(context.Context) error
}

func (w *waiting) Context() context.Context { return w.ctx }

func (w *waiting) RecvMsg(any) error { return w.first(w.ctx) }
