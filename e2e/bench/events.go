package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// eventPosts is how many groups are posted in sequence.
	eventPosts = 300
	// audience is the number of clients that receive audienceRate events a second for
	// audienceTime.
	audience     = 1000
	audienceRate = 100
	audienceTime = 20 * time.Second
	// eventPatience limits every wait for an event. It is not a measurement.
	eventPatience = time.Minute
)

// measureEvents measures the event stream of otherwise idle gateways: the delay of an
// event, the cost of many clients, and whether clients that reconnect while gateways are
// killed receive each event exactly once.
func measureEvents(ctx context.Context, b *bench) error {
	etcd, err := b.startEtcd("events-etcd")
	if err != nil {
		return err
	}
	defer etcd.Close()
	endpoint := "http://" + etcd.Clients[0].Addr().String()
	e := &eventBench{bench: b}
	if e.store, err = store.Dial([]string{endpoint}, store.Options{}); err != nil {
		return err
	}
	defer e.store.Close()
	if e.gateways, err = b.newGateways(ctx, "events", endpoint); err != nil {
		return err
	}
	one, err := e.start(ctx, "one")
	if err != nil {
		return err
	}
	defer one.Kill()
	if e.token, err = e.login(ctx, one); err != nil {
		return err
	}
	limit, err := watchTime(ctx, etcd)
	if err != nil {
		return err
	}
	if err := e.measurePosts(ctx, one, limit); err != nil {
		return err
	}
	if err := e.measureAudience(ctx, one); err != nil {
		return err
	}
	one.Kill()
	return e.measureReturns(ctx)
}

// eventBench is the common state of the family's measurements.
type eventBench struct {
	*bench
	*gateways
	store *store.Client
	token string
}

// watchTime returns the delay from a write to a watcher of etcd, in milliseconds, at the
// 95th percentile.
func watchTime(ctx context.Context, etcd *embed.Etcd) (float64, error) {
	client := v3client.New(etcd.Server)
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := client.Watch(ctx, "limit", clientv3.WithCreatedNotify())
	if _, ok := <-heard; !ok {
		return 0, fmt.Errorf("etcd ended")
	}
	var took []time.Duration
	for range eventPosts {
		began := time.Now()
		if _, err := client.Put(ctx, "limit", "value"); err != nil {
			return 0, err
		}
		if _, ok := <-heard; !ok {
			return 0, fmt.Errorf("etcd ended: %w", ctx.Err())
		}
		took = append(took, time.Since(began))
	}
	return quantile(took, 0.95), nil
}

// measurePosts posts groups and awaits the event of each.
func (e *eventBench) measurePosts(ctx context.Context, at *gateway, limit float64) error {
	s, err := e.listen(ctx, at.url, "")
	if err != nil {
		return err
	}
	defer s.Close()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	var took []time.Duration
	for n := range eventPosts + warmup {
		name := fmt.Sprintf("posted-%04d", n)
		spec := map[string]any{"name": name, "command": idler, "memoryMb": 16, "minInstances": 0, "maxInstances": 0}
		began := time.Now()
		posted := make(chan error, 1)
		go func() {
			posted <- wire.Call(ctx, client, wire.Request{Method: http.MethodPost, URL: at.url + "/api/v1/groups", Token: e.token, Body: spec}, nil)
		}()
		if err := s.until(name); err != nil {
			return err
		}
		heard := time.Since(began)
		if err := <-posted; err != nil {
			return err
		}
		if n >= warmup {
			took = append(took, heard)
		}
	}
	e.report("event_p50_ms", quantile(took, 0.5), "ms", -1)
	e.report("event_p95_ms", quantile(took, 0.95), "ms", limit)
	return nil
}

// writing creates a series of groups in sequence.
type writing struct {
	store  *store.Client
	prefix string
	// pause is the time between two of them.
	pause time.Duration

	// at holds the start of each write, in nanoseconds since 1970; nil when not needed.
	at      []atomic.Int64
	begun   atomic.Int64
	commits []time.Duration // read only after run has ended
}

func (w *writing) name(n int) string { return fmt.Sprintf("%s-%06d", w.prefix, n) }

// run writes until count groups are written or the context ends. When the store was slow,
// delayed writes follow at once.
func (w *writing) run(ctx context.Context, count int) error {
	start := time.Now()
	for n := 0; n < count && ctx.Err() == nil; n++ {
		if late := time.Until(start.Add(time.Duration(n) * w.pause)); late > 0 && !pause.For(ctx, late) {
			break
		}
		began := time.Now()
		if w.at != nil {
			w.at[n].Store(began.UnixNano())
		}
		w.begun.Add(1)
		group := fleet.Group{Name: fleet.GroupName(w.name(n)), Revision: 1, CreatedAt: began.UTC(), UpdatedAt: began.UTC(), Spec: fleet.DefaultSpec()}
		// A started write is completed, because listeners wait for every started one.
		if _, err := w.store.Commit(context.WithoutCancel(ctx), store.Txn{Writes: []store.Write{store.Create(keys.Group(group.Name), group)}}); err != nil {
			return err
		}
		w.commits = append(w.commits, time.Since(began))
	}
	return nil
}

// late returns the time since the start of write n.
func (w *writing) late(n int) time.Duration {
	return time.Duration(time.Now().UnixNano() - w.at[n].Load())
}

// measureAudience lets many clients receive all events in order.
func (e *eventBench) measureAudience(ctx context.Context, at *gateway) error {
	const count = int(audienceRate * audienceTime / time.Second)
	w := &writing{store: e.store, prefix: "audience", pause: time.Second / audienceRate, at: make([]atomic.Int64, count)}
	streams := make([]*stream, 0, audience)
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for range audience {
		s, err := e.listen(ctx, at.url, "")
		if err != nil {
			return fmt.Errorf("client %d: %w", len(streams)+1, err)
		}
		streams = append(streams, s)
	}
	results := make(chan heard, audience)
	for _, s := range streams {
		go func() { results <- s.hearAll(w, count) }()
	}
	cpu, err := cpuOf(at.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.run(ctx, count); err != nil {
		return err
	}
	took := time.Since(began)
	var delays []time.Duration
	for range audience {
		h := <-results
		if h.err != nil {
			return h.err
		}
		delays = append(delays, h.delays...)
	}
	after, err := cpuOf(at.PID())
	if err != nil {
		return err
	}
	rss, err := memoryMiB(at.PID(), "VmHWM:")
	if err != nil {
		return err
	}
	slices.Sort(delays)
	e.report("sse_1000x100_per_s", float64(len(delays))/took.Seconds(), "1/s", audience*audienceRate)
	e.report("sse_1000x100_p50_ms", milliseconds(delays[len(delays)/2]), "ms", quantile(w.commits, 0.5))
	e.report("sse_1000x100_p99_ms", milliseconds(delays[len(delays)*99/100]), "ms", quantile(w.commits, 0.99))
	e.report("sse_1000x100_cpu_pct", 100*(after-cpu).Seconds()/took.Seconds(), "%", -1)
	e.report("sse_1000x100_rss_mib", rss, "MiB", 300)
	return nil
}
