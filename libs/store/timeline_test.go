package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// joined returns an etcd with a client that has joined its cluster.
func joined(t *testing.T) (*storetest.Etcd, *store.Client) {
	t.Helper()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	join(t, c)
	return etcd, c
}

func join(t *testing.T, c *store.Client) cluster.Meta {
	t.Helper()
	var meta cluster.Meta
	again(t, "joining", func(ctx context.Context) (err error) {
		meta, err = c.Join(ctx, time.Unix(1, 0))
		return err
	})
	return meta
}

// again retries until it succeeds.
func again(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	await.That(t, what, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := try(ctx)
		return await.Unless(err == nil, "%v", err)
	})
}

// exchange replaces the data of a running etcd and returns a copy of the previous data.
func exchange(t *testing.T, etcd *storetest.Etcd, data string) (before string) {
	t.Helper()
	etcd.Stop()
	before = etcd.Backup(t)
	etcd.Restore(t, data)
	etcd.Restart(t)
	return before
}

// other returns the data of an etcd with another cluster and a higher revision.
func other(t *testing.T) string {
	t.Helper()
	etcd, c := joined(t)
	var rev int64
	for i := range 50 {
		rev = put(t, c, store.Replace(keys.Alloc("stranger"), fleet.Alloc{Node: fleet.NodeID(fmt.Sprint(i))}, rev))
	}
	etcd.Stop()
	return etcd.Backup(t)
}

func TestRestoredEtcdIsDetected(t *testing.T) {
	t.Parallel()
	etcd, c := joined(t)
	prefix := keys.Root + "allocs/"
	put(t, c, store.Create(keys.Alloc("kept"), fleet.Alloc{}))
	etcd.Stop()
	backup := etcd.Backup(t)
	etcd.Restart(t)

	w := follow(t, "the follower", c, prefix)
	var lost int64
	for i := range 20 {
		lost = put(t, c, store.Create(keys.Alloc(fleet.NodeID(fmt.Sprint("lost", i))), fleet.Alloc{}))
	}
	w.await(t, lost)
	exchange(t, etcd, backup)

	kept := keys.Alloc("kept").String()
	w.until(t, "the list of the backup", func() bool {
		state := w.now()
		return len(state) == 1 && state[kept] != ""
	})
	if w.rewound != 1 {
		t.Errorf("told %d times that etcd went back in time", w.rewound)
	}
	rev := put(t, c, store.Create(keys.Alloc("new"), fleet.Alloc{}))
	if rev >= lost {
		t.Fatalf("revision %d is not below %d: the test shows nothing", rev, lost)
	}
	w.until(t, "what is written after it", func() bool { got, _ := w.last(); return got == rev })
}

func TestForeignClusterIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]func(*testing.T) string{
		"another cluster's": other,
		"an empty one":      func(t *testing.T) string { return t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			etcd, c := joined(t)
			w := follow(t, "the follower", c, keys.Root+"allocs/")
			put(t, c, store.Create(keys.Alloc("ours"), fleet.Alloc{}))
			own := exchange(t, etcd, data(t))

			var foreign *store.ForeignError
			create := store.Txn{Writes: []store.Write{store.Create(keys.Alloc("mine"), fleet.Alloc{})}}
			again(t, "being refused", func(ctx context.Context) error {
				if _, err := c.Commit(ctx, create); !errors.As(err, &foreign) || !errs.Is(err, errs.Unavailable) {
					return fmt.Errorf("err = %v", err)
				}
				return nil
			})
			if err := c.Ping(t.Context()); !errors.As(err, &foreign) {
				t.Errorf("Ping: %v", err)
			}
			if got, err := etcd.Raw().Get(t.Context(), keys.Alloc("mine").String()); err != nil || got.Count != 0 {
				t.Errorf("the refused write left a trace: %v, %v", got, err)
			}

			exchange(t, etcd, own)
			again(t, "writing to our own", func(ctx context.Context) error {
				_, err := c.Commit(ctx, create)
				return err
			})
			w.until(t, "its own again", func() bool { return w.now()[keys.Alloc("mine").String()] != "" })
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, in := range w.told {
				if _, ok := in.list[keys.Alloc("stranger").String()]; ok || strings.Contains(fmt.Sprint(in.changes), "stranger") {
					t.Error("the stranger's records were delivered")
				}
			}
		})
	}
}

func TestRejoinBindsToCurrentCluster(t *testing.T) {
	t.Parallel()
	etcd, c := joined(t)
	w := follow(t, "the follower", c, keys.Root+"allocs/")
	exchange(t, etcd, other(t))
	join(t, c)
	w.until(t, "the other cluster's records", func() bool { return w.now()[keys.Alloc("stranger").String()] != "" })
	put(t, c, store.Create(keys.Alloc("mine"), fleet.Alloc{}))
}

func TestNewerSchemaStopsWrites(t *testing.T) {
	t.Parallel()
	etcd, c := joined(t)
	have, err := etcd.Raw().Get(t.Context(), keys.Meta().String())
	if err != nil {
		t.Fatal(err)
	}
	meta := string(have.Kvs[0].Value)
	set := func(value string) {
		if _, err := etcd.Raw().Put(t.Context(), keys.Meta().String(), value); err != nil {
			t.Fatal(err)
		}
	}
	newer := join(t, c)
	set(fmt.Sprintf(`{"schema":%d,"clusterId":%q}`, keys.Schema+1, newer.ClusterID))
	write := func() error {
		_, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Alloc("n1"), fleet.Alloc{})}})
		return err
	}
	var foreign *store.ForeignError
	if err := write(); !errors.As(err, &foreign) || foreign.Found.Schema != keys.Schema+1 {
		t.Errorf("err = %v", err)
	}
	set(meta)
	if err := write(); err != nil {
		t.Errorf("after the schema is ours again: %v", err)
	}
}

func TestReformattedMetaRecordIsAccepted(t *testing.T) {
	t.Parallel()
	etcd, c := joined(t)
	meta := join(t, c)
	if _, err := etcd.Raw().Put(t.Context(), keys.Meta().String(), fmt.Sprintf(`{"schema":%d,"clusterId":%q,"note":"moved"}`, keys.Schema, meta.ClusterID)); err != nil {
		t.Fatal(err)
	}
	again(t, "writing", func(ctx context.Context) error {
		_, err := c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Alloc("n1"), fleet.Alloc{})}})
		return err
	})
}

func TestMaxOpsLeavesRoomForMetaComparison(t *testing.T) {
	t.Parallel()
	_, c := joined(t)
	var txn store.Txn
	for i := range c.MaxOps() {
		txn.Writes = append(txn.Writes, store.Create(keys.Alloc(fleet.NodeID(fmt.Sprint("n", i))), fleet.Alloc{}))
	}
	if _, err := c.Commit(t.Context(), txn); err != nil {
		t.Error(err)
	}
}
