package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/memory"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler"
)

const (
	// placeMaxOps is the limit that standalone sets for its etcd.
	placeMaxOps = 1024
	// placePatience limits one run.
	placePatience = 4 * time.Minute
	// placeBudget is the default memory budget of the scheduler's program. Here one process
	// holds several schedulers, and etcd, which gets the same budget.
	placeBudget = 1024 * memory.MiB
)

// placeRun is the result of a run of schedulers.
type placeRun struct {
	placed int
	took   time.Duration
	// cpu is the CPU time of the whole process during the run: etcd, views and schedulers.
	cpu time.Duration
	// faults counts placements beyond a node's capacity, and ports and instances that were
	// placed twice.
	faults int
	// lost is how many parts of transactions lost a comparison, one per node.
	lost float64
	// txns are the committed transactions in order.
	txns []madeTxn
}

func (r *placeRun) perSecond() float64 { return float64(r.placed) / r.took.Seconds() }

// cpuEach returns the CPU time per placement in microseconds.
func (r *placeRun) cpuEach() float64 {
	return float64(r.cpu.Nanoseconds()) / 1000 / float64(r.placed)
}

// placeEtcd is a one-member etcd on disk with fsync, with in-process clients as in
// standalone.
type placeEtcd struct {
	*embed.Etcd
	dir     string
	raw     *clientv3.Client
	clients []*clientv3.Client
}

func (b *bench) startPlaceEtcd() (*placeEtcd, error) {
	dir, err := os.MkdirTemp(b.dir, "place-etcd-")
	if err != nil {
		return nil, err
	}
	db, err := b.startEtcd(filepath.Base(dir), func(cfg *embed.Config) { cfg.MaxTxnOps = placeMaxOps })
	if err != nil {
		return nil, err
	}
	e := &placeEtcd{Etcd: db, dir: dir}
	e.raw = e.client()
	return e, nil
}

func (e *placeEtcd) client() *clientv3.Client {
	c := v3client.New(e.Server)
	e.clients = append(e.clients, c)
	return c
}

func (e *placeEtcd) store() *store.Client {
	return store.New(e.client(), store.Options{MaxOps: placeMaxOps})
}

func (e *placeEtcd) stop() {
	for _, c := range e.clients {
		_ = c.Close()
	}
	e.Server.HardStop()
	e.Close()
	_ = os.RemoveAll(e.dir)
}

// cast is the number of schedulers in a run, and of additional views that only follow, like
// those of schedulers without a group.
type cast struct{ schedulers, followers int }

// placeRun writes a fleet into a new etcd, runs schedulers until all instances are placed,
// and returns the result.
func (b *bench) placeRun(ctx context.Context, size fleetSize, who cast) (*placeRun, error) {
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	progress("%d nodes, %d instances of %d groups, %d schedulers, %d more views", size.nodes, size.instances, len(size.groups), who.schedulers, who.followers)
	e, err := b.startPlaceEtcd()
	if err != nil {
		return nil, err
	}
	defer e.stop()
	c := e.store()
	if _, err := c.Join(ctx, time.Now()); err != nil {
		return nil, err
	}
	if err := size.seed(ctx, c); err != nil {
		return nil, err
	}
	run := &placeRun{}
	if err := e.schedule(ctx, who, func(ctx context.Context, heard *arrivals) error {
		before := cpuTime()
		began, err := e.claimed(ctx)
		if err != nil {
			return err
		}
		if err := heard.await(ctx, size.instances); err != nil {
			return err
		}
		run.took, run.cpu = time.Since(began), cpuTime()-before
		run.lost, err = heard.lost()
		return err
	}); err != nil {
		return nil, err
	}
	if err := e.read(ctx, size, run); err != nil {
		return nil, err
	}
	progress("%.0f placements a second, %.1f µs of CPU each, %d transactions, %.0f parts lost, %d faults", run.perSecond(), run.cpuEach(), len(run.txns), run.lost, run.faults)
	return run, nil
}

// schedule runs schedulers during work, each with its own view and client.
func (e *placeEtcd) schedule(ctx context.Context, who cast, work func(context.Context, *arrivals) error) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if os.Getenv("GOGC") == "" {
		running.Go(func() { _ = memory.Spend(ctx, placeBudget*uint64(1+who.schedulers+who.followers)) })
	}
	heard := &arrivals{changed: make(chan struct{}, 1), metrics: prometheus.NewRegistry()}
	var services []*scheduler.Service
	for n := range who.schedulers + who.followers {
		c := e.store()
		if _, err := c.Join(ctx, time.Now()); err != nil {
			return err
		}
		v := view.New(c, nil)
		if n == 0 {
			v.Subscribe(heard.hear)
		}
		if n < who.schedulers {
			s, err := scheduler.New(scheduler.Config{
				Store: c, View: v, Replica: fmt.Sprintf("r%d", n), Log: slog.New(slog.DiscardHandler),
				Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"replica": strconv.Itoa(n)}, heard.metrics),
			})
			if err != nil {
				return err
			}
			services = append(services, s)
		}
		running.Go(func() { _ = v.Run(ctx) })
		if err := v.Synced(ctx); err != nil {
			return err
		}
	}
	for _, s := range services {
		running.Go(func() { _ = s.Run(ctx) })
	}
	return work(ctx, heard)
}

// claimed waits until the first scheduler owns a shard, and returns that time.
func (e *placeEtcd) claimed(ctx context.Context) (time.Time, error) {
	for {
		resp, err := e.raw.Get(ctx, keys.Shards("scheduler").String(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || resp.Count > 0 {
			return time.Now(), err
		}
		if !pause.For(ctx, time.Millisecond) {
			return time.Time{}, ctx.Err()
		}
	}
}

// arrivals counts the placements that a view has seen.
type arrivals struct {
	placed  atomic.Int64
	changed chan struct{}
	metrics *prometheus.Registry
}

// lost returns how many parts of all schedulers' transactions lost a comparison.
func (a *arrivals) lost() (sum float64, err error) {
	families, err := a.metrics.Gather()
	for _, f := range families {
		if f.GetName() == "orrery_scheduler_conflicts_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum, err
}

func (a *arrivals) hear(b view.Batch) {
	n := 0
	for i := range b.Changes {
		if c := &b.Changes[i]; c.Kind == view.KindPlacement && c.After != nil {
			n++
		}
	}
	a.placed.Add(int64(n))
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *arrivals) await(ctx context.Context, n int) error {
	for a.placed.Load() < int64(n) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d were placed: %w", a.placed.Load(), n, ctx.Err())
		case <-a.changed:
		}
	}
	return nil
}

// evenGroups returns group names of which each of four replicas owns the same number. The
// ownership of shards depends only on the replicas' names.
func (b *bench) evenGroups(ctx context.Context) ([]fleet.GroupName, error) {
	e, err := b.startPlaceEtcd()
	if err != nil {
		return nil, err
	}
	defer e.stop()
	c := e.store()
	if _, err := c.Join(ctx, time.Now()); err != nil {
		return nil, err
	}
	var owners map[int]string
	err = e.schedule(ctx, cast{schedulers: placeReplicas}, func(ctx context.Context, _ *arrivals) error {
		owners, err = evenShards(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	var groups []fleet.GroupName
	had := map[string]int{}
	for n := 0; len(groups) < placeReplicas*placeGroups; n++ {
		name := fleet.GroupName(fmt.Sprintf("group-%d", n))
		if owner := owners[fleet.ShardOf(name)]; had[owner] < placeGroups {
			had[owner]++
			groups = append(groups, name)
		}
	}
	return groups, nil
}

// evenShards returns the owners of the shards once each replica has its share.
func evenShards(ctx context.Context, c *store.Client) (map[int]string, error) {
	for {
		owners, load := map[int]string{}, map[string]int{}
		for n := range fleet.ShardCount {
			if s, err := store.Get(ctx, c, keys.Shard("scheduler", n)); err == nil {
				owners[n] = s.Replica
				load[s.Replica]++
			}
		}
		even := len(owners) == fleet.ShardCount
		for n := range placeReplicas {
			even = even && load[fmt.Sprintf("r%d", n)] == fleet.ShardCount/placeReplicas
		}
		if even {
			return owners, nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("the shares are %v: %w", load, ctx.Err())
		}
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
