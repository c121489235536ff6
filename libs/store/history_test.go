package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// tape records the calls to a Handler.
type tape struct {
	start []string
	seen  []string
	rev   int64
}

func (p *tape) Reset(kvs []store.KeyValue, rev int64) {
	for _, kv := range kvs {
		p.start = append(p.start, fmt.Sprintf("%s@%d", kv.Key, kv.ModRev))
	}
	p.rev = rev
}

func (p *tape) Apply(changes []store.Change, rev int64) {
	for _, c := range changes {
		p.seen = append(p.seen, fmt.Sprintf("%s@%d removed=%v", c.Key, c.ModRev, c.Removed))
	}
	p.rev = rev
}

func TestHistoryDeliversStateAndChanges(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	k := keys.Alloc("n1")
	r1 := put(t, c, store.Create(k, fleet.Alloc{Node: "n1"}))
	r2 := put(t, c, store.Replace(k, fleet.Alloc{Node: "n2"}, r1))
	r3 := put(t, c, store.Remove(k, r2))
	resp, err := etcd.Raw().Put(t.Context(), "/foreign", "x") // a revision without changes below the prefix
	if err != nil {
		t.Fatal(err)
	}
	r4 := resp.Header.Revision
	put(t, c, store.Create(k, fleet.Alloc{Node: "n3"}))

	change := func(rev int64, removed bool) string { return fmt.Sprintf("%s@%d removed=%v", k, rev, removed) }
	for _, tc := range []struct {
		name        string
		from, to    int64
		start, seen []string
	}{
		{"all of it", r1 - 1, r3, nil, []string{change(r1, false), change(r2, false), change(r3, true)}},
		{"a part, which starts from the state then", r1, r2, []string{fmt.Sprintf("%s@%d", k, r1)}, []string{change(r2, false)}},
		{"up to a revision without a change here", r2, r4, []string{fmt.Sprintf("%s@%d", k, r2)}, []string{change(r3, true)}},
		{"nothing", r3, r3, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p tape
			if err := c.History(t.Context(), keys.Root, tc.from, tc.to, &p); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.start, tc.start) || !slices.Equal(p.seen, tc.seen) || p.rev != tc.to {
				t.Errorf("start %v, then %v up to %d; want %v, %v, %d", p.start, p.seen, p.rev, tc.start, tc.seen, tc.to)
			}
		})
	}
}

func TestHistoryUpToLatestRevisionEnds(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	r1 := put(t, c, store.Create(keys.Alloc("n1"), fleet.Alloc{Node: "n1"}))
	resp, err := etcd.Raw().Put(t.Context(), "/foreign", "x")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*store.Client{"over the network": c, "in process": store.New(etcd.Raw(), store.Options{})} {
		t.Run(name, func(t *testing.T) {
			var p tape
			if err := c.History(t.Context(), keys.Root, r1, resp.Header.Revision, &p); err != nil {
				t.Fatal(err)
			}
			if p.rev != resp.Header.Revision || len(p.seen) != 0 {
				t.Errorf("up to %d with %v", p.rev, p.seen)
			}
		})
	}
}

// beginner is a follower with a hook between its list and its watch.
type beginner struct {
	witness
	between func()
}

func (b *beginner) Reset(kvs []store.KeyValue, rev int64) {
	b.between()
	b.witness.Reset(kvs, rev)
}

func TestFollowDuringHistoryMissesNothing(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c, faults := etcd.Faulty(t)
	healthy := etcd.Client(t)
	from := put(t, healthy, store.Create(keys.Alloc("n1"), fleet.Alloc{}))
	asked := faults.Overtake()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })

	var past tape
	read := make(chan error, 1)
	b := &beginner{witness: witness{name: "the follower", moved: make(chan struct{}, 1)}}
	b.between = func() {
		w := store.Create(keys.Alloc("n2"), fleet.Alloc{})
		_, err := healthy.Commit(ctx, store.Txn{Writes: []store.Write{w}})
		if err != nil {
			read <- err
			return
		}
		foreign, err := etcd.Raw().Put(ctx, "/foreign", "x") // makes the follower ask for progress
		if err != nil {
			read <- err
			return
		}
		running.Go(func() { read <- c.History(ctx, keys.Root, from, foreign.Header.Revision, &past) })
		select {
		case <-asked:
		case <-ctx.Done():
			t.Error("the reader of history did not ask how far it is")
		}
	}
	running.Go(func() { _ = c.Follow(ctx, keys.Root, b) })
	b.await(t, from)
	faults.Heal()
	if err := <-read; err != nil || len(past.seen) != 1 {
		t.Errorf("the past is %v, %v; want one change", past.seen, err)
	}
	last := put(t, healthy, store.Create(keys.Alloc("n3"), fleet.Alloc{}))
	b.await(t, last)
	truth := storetest.NewTruth(t, healthy, keys.Root)
	if want := truth.At(last); !maps.Equal(b.now(), want) {
		t.Errorf("it knows %v, want %v", b.now(), want)
	}
}

func TestCompactedHistoryIsReported(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	r1 := put(t, c, store.Create(keys.Alloc("n1"), fleet.Alloc{Node: "n1"}))
	r2 := put(t, c, store.Create(keys.Alloc("n2"), fleet.Alloc{Node: "n2"}))
	etcd.Compact(t)
	if err := c.History(t.Context(), keys.Root, r1, r2, &tape{}); !store.Compacted(err) || !errs.Is(err, errs.NotFound) {
		t.Errorf("err = %v, want NotFound because of compaction", err)
	}
}

func TestTooDeepRecordIsRefused(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	k := keys.Preferences("u-1")
	for levels, kept := range map[int]bool{190: true, 9_990: false} {
		deep := json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
		err := store.CreateFor(t.Context(), c, k, account.Preferences{Value: map[string]json.RawMessage{"a": deep}}, time.Minute)
		if kept && err != nil || !kept && !errs.Is(err, errs.Invalid) {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

func TestCreateForExpires(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	k := keys.Ticket("abc")
	if err := store.CreateFor(t.Context(), c, k, account.Ticket{Credential: account.Credential{User: "ann"}, Stream: "events"}, time.Second); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Get(t.Context(), c, k); err != nil || got.User != "ann" {
		t.Fatalf("Get = %+v, %v", got, err)
	}
	if err := store.CreateFor(t.Context(), c, k, account.Ticket{}, time.Second); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("a second create: %v, want AlreadyExists", err)
	}
	deadline := time.Now().Add(await.Patience)
	for {
		_, err := store.Get(t.Context(), c, k)
		if errs.Is(err, errs.NotFound) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it still stands: %v", err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func put(t *testing.T, c *store.Client, w store.Write) int64 {
	t.Helper()
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{w}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
