package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	restNodes     = 1000
	restInstances = 20_000
	restSettle    = 45 * time.Second
	restWindow    = 60 * time.Second
	restPulse     = 5 * time.Second
	// compactionPause is the time for a compaction to work through the database.
	compactionPause = 5 * time.Second
)

// measureRest measures the load that a large idle fleet puts on etcd. The fleet has a
// thousand real agents, each with its own connection, session and reports, twenty thousand
// online instances, a scheduler, an enforcer and a gateway. A second measurement keeps the
// host's CPUs busy every other five seconds, so that the reported CPU use of all nodes
// changes constantly. A third one has players that move.
func measureRest(ctx context.Context, b *bench) error {
	server, err := b.startEtcd("rest-etcd")
	if err != nil {
		return err
	}
	db := &restEtcd{Etcd: server}
	defer db.Close()
	f := &restFleet{dir: filepath.Join(b.dir, "rest"), endpoint: "http://" + db.Clients[0].Addr().String()}
	defer f.stop()
	if err := f.start(ctx); err != nil {
		return err
	}
	count := &writes{byKind: map[string]int{}}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	watcher.Go(func() { _ = f.store.Follow(watching, keys.Root, count) })
	if !pause.For(ctx, restSettle) {
		return ctx.Err()
	}
	if err := db.compact(ctx); err != nil {
		return err
	}
	before := db.inUseMiB()
	still, err := count.during(ctx, "at rest")
	if err != nil {
		return err
	}
	pulsing, calm := context.WithCancel(ctx)
	watcher.Go(func() { pulse(pulsing) })
	moving, err := count.during(ctx, "while usage moves")
	calm()
	if err != nil {
		return err
	}
	history := db.inUseMiB()
	if err := db.compact(ctx); err != nil {
		return err
	}
	after := db.inUseMiB()
	if err := f.check(ctx); err != nil {
		return err
	}
	b.report("rest_writes_per_s", still, "1/s", -1)
	b.report("rest_writes_moving_per_s", moving, "1/s", -1)
	b.report("rest_db_mib", before, "MiB", -1)
	b.report("rest_db_after_mib", after, "MiB", -1)
	b.report("rest_history_mib_per_h", (history-before)*float64(time.Hour/(2*restWindow)), "MiB/h", -1)
	return f.measurePlayers(ctx, b)
}

// pulse keeps all CPUs busy half of the time.
func pulse(ctx context.Context) {
	var burning sync.WaitGroup
	for range runtime.NumCPU() {
		burning.Go(func() {
			for ctx.Err() == nil {
				for until := time.Now().Add(restPulse); time.Now().Before(until) && ctx.Err() == nil; {
					continue
				}
				pause.For(ctx, restPulse)
			}
		})
	}
	burning.Wait()
}

// writes counts the written keys by kind.
type writes struct {
	mu     sync.Mutex
	byKind map[string]int
}

// Reset receives the initial list, which is not a write.
func (w *writes) Reset([]store.KeyValue, int64) {}

// Apply counts changes.
func (w *writes) Apply(changes []store.Change, _ int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		kind, _, _ := keys.Split(c.Key)
		w.byKind[kind]++
	}
}

// during counts for a while and returns the writes per second.
func (w *writes) during(ctx context.Context, what string) (float64, error) {
	w.take()
	if !pause.For(ctx, restWindow) {
		return 0, ctx.Err()
	}
	total, kinds := w.take()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(os.Stderr, "  %s: %d writes of %s\n", what, kinds[kind], kind)
	}
	return float64(total) / restWindow.Seconds(), nil
}

// take returns the counts and resets them.
func (w *writes) take() (total int, byKind map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byKind, w.byKind = w.byKind, map[string]int{}
	for _, n := range byKind {
		total += n
	}
	return total, byKind
}

// restEtcd is one member whose history is compacted explicitly.
type restEtcd struct {
	*embed.Etcd
	compacted int64
}

// compact compacts the history, as etcd's own periodic compaction does.
func (db *restEtcd) compact(ctx context.Context) error {
	client := v3client.New(db.Server)
	defer client.Close()
	now, err := client.Get(ctx, keys.Meta().String())
	if err != nil || now.Header.Revision == db.compacted {
		return err
	}
	db.compacted = now.Header.Revision
	if _, err := client.Compact(ctx, db.compacted); err != nil {
		return err
	}
	pause.For(ctx, compactionPause)
	return ctx.Err()
}

// inUseMiB returns the used part of the database.
func (db *restEtcd) inUseMiB() float64 {
	db.Server.Backend().ForceCommit()
	return float64(db.Server.Backend().SizeInUse()) / (1 << 20)
}
