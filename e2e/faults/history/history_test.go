package history_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestEveryRevisionIsRecordedAndReplayed(t *testing.T) {
	c := storetest.Start(t).Client(t)
	var r history.Recorder
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx, c) })
	defer func() { cancel(); wg.Wait() }()

	catchUp := func(rev int64) {
		await.That(t, fmt.Sprint("revision ", rev), func() string { return await.Unless(r.Rev() >= rev, "%d", r.Rev()) })
	}
	catchUp(1)
	key := keys.Node("node-1")
	rev, err := c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(key, fleet.Node{ID: "node-1"}), store.Create(keys.Alloc("node-1"), fleet.Alloc{})}})
	if err != nil {
		t.Fatal(err)
	}
	rev, err = c.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(key, fleet.Node{ID: "node-1", Address: "a"}, rev)}})
	if err != nil {
		t.Fatal(err)
	}
	if rev, err = c.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(key, rev)}}); err != nil {
		t.Fatal(err)
	}
	catchUp(rev)
	events, err := r.Events()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = history.Walk(events, func(before, after *history.State, txn []history.Event) error {
		got = append(got, fmt.Sprintf("%d changes, %q to %q of %d", len(txn), before.Nodes["node-1"].Address, after.Nodes["node-1"].Address, len(after.Nodes)))
		return nil
	})
	want := []string{`2 changes, "" to "" of 1`, `1 changes, "" to "a" of 1`, `1 changes, "a" to "" of 0`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %q\nwant %q", err, got, want)
	}
}

func TestAGapIsTold(t *testing.T) {
	var r history.Recorder
	r.Reset(nil, 5)
	r.Apply(nil, 7)
	if _, err := r.Events(); err != nil || r.Rev() != 7 {
		t.Errorf("at %d, %v", r.Rev(), err)
	}
	r.Reset(nil, 9)
	if _, err := r.Events(); err == nil {
		t.Error("what was compacted away is not missed")
	}
}

func TestARecordThatCannotBeReadIsTold(t *testing.T) {
	bad := history.Event{Change: store.Change{KeyValue: store.KeyValue{Key: keys.Node("node-1").String(), Value: []byte("{"), ModRev: 3}}}
	if _, err := history.Last([]history.Event{bad}); err == nil {
		t.Error("no error")
	}
}
