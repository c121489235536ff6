package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/store"
)

const (
	restNodes     = 1000
	restInstances = 20_000
	restSettle    = 45 * time.Second
	restWindow    = 60 * time.Second
	// compactionPause is the time a compaction gets to work through the database.
	compactionPause = 5 * time.Second
)

// measureRest measures what a large fleet costs etcd when nothing happens: a
// thousand real agents, each with its own connection, session and reports; twenty
// thousand instances that are online; a scheduler, an enforcer and a gateway. The
// agents share one host, so whatever moves its usage moves all their reports.
func measureRest(ctx context.Context, b *bench) error {
	db, err := startRestEtcd(b)
	if err != nil {
		return err
	}
	defer db.Close()
	endpoint := db.Clients[0].Addr().String()
	f := &restFleet{dir: filepath.Join(b.dir, "rest"), endpoint: "http://" + endpoint}
	defer f.stop()
	if err := f.start(ctx); err != nil {
		return err
	}
	count := &writes{byKind: map[string]int{}}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	watcher.Go(func() { _ = f.store.Follow(watching, store.Root, count) })
	if err := pause(ctx, restSettle); err != nil {
		return err
	}
	if err := compact(ctx, db); err != nil {
		return err
	}
	before := inUseMiB(db)
	count.reset()
	if err := pause(ctx, restWindow); err != nil {
		return err
	}
	total, kinds := count.reset()
	history := inUseMiB(db)
	if err := compact(ctx, db); err != nil {
		return err
	}
	after := inUseMiB(db)
	if err := f.check(ctx); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(os.Stderr, "  %d writes of %s\n", kinds[kind], kind)
	}
	b.report("rest_writes_per_s", float64(total)/restWindow.Seconds(), "1/s", -1)
	b.report("rest_db_mib", before, "MiB", -1)
	b.report("rest_db_after_mib", after, "MiB", -1)
	b.report("rest_history_mib_per_h", (history-before)*float64(time.Hour/restWindow), "MiB/h", -1)
	return nil
}

// writes counts the keys that are written, by kind.
type writes struct {
	mu     sync.Mutex
	byKind map[string]int
}

// Reset is the list at the start, which is no write.
func (w *writes) Reset([]store.KeyValue, int64) {}

// Apply counts.
func (w *writes) Apply(changes []store.Change, _ int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		kind, _, _ := store.SplitKey(c.Key)
		w.byKind[kind]++
	}
}

// reset returns what was counted and begins anew.
func (w *writes) reset() (total int, byKind map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byKind, w.byKind = w.byKind, map[string]int{}
	for _, n := range byKind {
		total += n
	}
	return total, byKind
}

// startRestEtcd runs a one-member etcd as an operator would: on disk, with fsync.
func startRestEtcd(b *bench) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(b.dir, "rest-etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = loopback, loopback
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = loopback, loopback
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	<-server.Server.ReadyNotify()
	return server, nil
}

// compact drops history up to now, as etcd's own periodic compaction does.
func compact(ctx context.Context, db *embed.Etcd) error {
	client := v3client.New(db.Server)
	defer client.Close()
	now, err := client.Get(ctx, store.MetaKey().String())
	if err != nil {
		return err
	}
	if _, err := client.Compact(ctx, now.Header.Revision); err != nil {
		return err
	}
	return pause(ctx, compactionPause)
}

// inUseMiB is the part of the database that holds something.
func inUseMiB(db *embed.Etcd) float64 {
	db.Server.Backend().ForceCommit()
	return float64(db.Server.Backend().SizeInUse()) / (1 << 20)
}
