package apigateway

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func newUnstartedView(s *site) *view.View { return view.New(s.store, nil) }

// runWithView runs a gateway that is expected to return.
func runWithView(t *testing.T, g *Gateway) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.cfg.View.Run(ctx) })
	err := g.Run(ctx)
	cancel()
	wg.Wait()
	return err
}

// removeTemplate deletes a template.
func (s *site) removeTemplate(h *content.TemplateHead) {
	s.t.Helper()
	s.commit(store.Remove(keys.TemplateHead(h.TemplateRef), h.ModRev))
}

// lagging is a gateway whose view can be paused while etcd is reachable.
type lagging struct {
	*site
	faults  *storetest.Faults
	lag     atomic.Bool
	stopped chan struct{}
	resumed chan struct{}
	// resume lets the view catch up.
	resume func()
}

// newLagging starts another gateway on an etcd, without a login.
func newLagging(t *testing.T, etcd *storetest.Etcd) *lagging {
	t.Helper()
	l := &lagging{stopped: make(chan struct{}), resumed: make(chan struct{})}
	l.resume = sync.OnceFunc(func() { close(l.resumed) })
	stop := sync.OnceFunc(func() { close(l.stopped) })
	l.site = newSiteOn(t, etcd, func(c *Config) {
		c.Store, l.faults = etcd.Faulty(t)
		if _, err := c.Store.Join(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		c.View.Subscribe(func(view.Batch) {
			if l.lag.Load() {
				stop()
				<-l.resumed
			}
		})
	})
	t.Cleanup(l.resume)
	return l
}

// stopView pauses the view.
func (l *lagging) stopView() {
	l.t.Helper()
	l.lag.Store(true)
	if _, err := l.store.Commit(l.t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Network("last-seen"), players.Network{Name: "last-seen"})}}); err != nil {
		l.t.Fatal(err)
	}
	<-l.stopped
}

// readAgain waits until the gateway has sent more further reads to etcd or until is true.
func (l *lagging) readAgain(before, more int, until func() bool) {
	l.t.Helper()
	await.That(l.t, "reads of etcd", func() string {
		n := l.faults.Reads() - before
		return await.Unless(n >= more || until(), "there were %d, of %d", n, more)
	})
}
