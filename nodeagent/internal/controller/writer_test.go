package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// A final status that is not yet written when the instance is forgotten, as when its
// placement was removed, still replaces an existing record.
func TestForgetWritesFinalStatusOfExistingRecord(t *testing.T) {
	c := storetest.New(t)
	session, err := store.OpenSession(t.Context(), c, keys.Session("nodeagent", "n1"), cluster.Session{}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(t.Context())
	var open atomic.Bool
	w := newWriter(Config{
		Store: c, Log: slog.New(slog.DiscardHandler), CheckSession: func() {},
		Fence: func() (store.Fence, bool) { return session.Fence(), open.Load() },
	}, func(fleet.InstanceID, machine.Event) {})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	defer running.Wait()
	defer cancel()

	status := func(id fleet.InstanceID, s fleet.State) fleet.Status {
		return fleet.Status{Instance: id, Group: "g", Node: "n1", Generation: 1, State: s, ChangedAt: time.Now()}
	}
	flushed := func() {
		t.Helper()
		within, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		if err := w.flush(within); err != nil {
			t.Fatal(err)
		}
	}
	open.Store(true)
	w.report(status("told", fleet.Preparing))
	flushed()

	open.Store(false)
	for _, id := range []fleet.InstanceID{"told", "unseen", "unknown"} {
		if id != "told" {
			w.report(status(id, map[fleet.InstanceID]fleet.State{"unseen": fleet.Preparing, "unknown": fleet.Starting}[id]))
		}
		w.report(status(id, fleet.Failed))
		w.forget(id)
	}
	open.Store(true)
	flushed()
	if st, err := store.Get(t.Context(), c, keys.Status("told")); err != nil || st.State != fleet.Failed {
		t.Errorf("status of told is %s, %v", st.State, err)
	}
	for _, id := range []fleet.InstanceID{"unseen", "unknown"} {
		if _, err := store.Get(t.Context(), c, keys.Status(id)); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s has a record: %v", id, err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.slots) > 0 {
		t.Errorf("%d slots are left", len(w.slots))
	}
}

// A run of an earlier generation reports its end after the instance was placed on another
// node, or after another writer wrote its end.
func TestStatusDoesNotReplaceNewerRecord(t *testing.T) {
	for _, have := range []fleet.Status{
		{Generation: 2, Node: "n2", State: fleet.Online},
		{Generation: 1, Node: "n1", State: fleet.Crashed},
	} {
		t.Run(string(have.State), func(t *testing.T) {
			c := storetest.New(t)
			session, err := store.OpenSession(t.Context(), c, keys.Session("nodeagent", "n1"), cluster.Session{}, time.Minute, false)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(t.Context())
			w := newWriter(Config{
				Store: c, Log: slog.New(slog.DiscardHandler), CheckSession: func() {},
				Fence: func() (store.Fence, bool) { return session.Fence(), true },
			}, func(fleet.InstanceID, machine.Event) {})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { w.run(ctx) })
			defer running.Wait()
			defer cancel()
			have.Instance, have.Group, have.ChangedAt = "a", "g", time.Now()
			key := keys.Status("a")
			if _, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(key, have)}}); err != nil {
				t.Fatal(err)
			}
			for _, state := range []fleet.State{fleet.Stopping, fleet.Stopped} {
				w.report(fleet.Status{Instance: "a", Group: "g", Node: "n1", Generation: 1, State: state, ChangedAt: time.Now()})
				within, cancel := context.WithTimeout(t.Context(), await.Patience)
				if err := w.flush(within); err != nil {
					t.Fatal(err)
				}
				cancel()
			}
			if got, err := store.Get(t.Context(), c, key); err != nil || got.Generation != have.Generation || got.State != have.State {
				t.Errorf("the record is %+v, %v", got, err)
			}
		})
	}
}

// An agent restarts a crashed instance alone when it cannot write the crash for a while. If the crash
// is written at that moment, the enforcer replaces the instance, and the record stays.
func TestRestartDoesNotReplaceWrittenEnd(t *testing.T) {
	c := storetest.New(t)
	session, err := store.OpenSession(t.Context(), c, keys.Session("nodeagent", "n1"), cluster.Session{}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(t.Context())
	superseded := make(chan machine.Event, 1)
	w := newWriter(Config{
		Store: c, Log: slog.New(slog.DiscardHandler), CheckSession: func() {},
		Fence: func() (store.Fence, bool) { return session.Fence(), true },
	}, func(_ fleet.InstanceID, e machine.Event) {
		if _, is := e.(machine.Superseded); is {
			superseded <- e
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	defer running.Wait()
	defer cancel()
	write := func(generation int64, state fleet.State) {
		t.Helper()
		w.report(fleet.Status{Instance: "a", Group: "g", Node: "n1", Generation: generation, State: state, ChangedAt: time.Now()})
		within, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		if err := w.flush(within); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []fleet.State{fleet.Preparing, fleet.Online, fleet.Crashed, fleet.Starting} {
		write(1, state)
	}
	if got, err := store.Get(t.Context(), c, keys.Status("a")); err != nil || got.State != fleet.Crashed {
		t.Fatalf("the record is %+v, %v", got, err)
	}
	if got := <-superseded; got != (machine.Superseded{Generation: 1}) {
		t.Errorf("the instance got %+v", got)
	}
	write(2, fleet.Preparing)
	if got, err := store.Get(t.Context(), c, keys.Status("a")); err != nil || got.Generation != 2 {
		t.Errorf("the record is %+v, %v", got, err)
	}
}

func TestRecordIsReadAgainOnlyBeforeALaterStatusOfAnEndedGeneration(t *testing.T) {
	w := newWriter(Config{Log: slog.New(slog.DiscardHandler)}, func(fleet.InstanceID, machine.Event) {})
	next := func(generation int64, state fleet.State) *item {
		t.Helper()
		w.report(fleet.Status{Instance: "a", Generation: generation, State: state, ChangedAt: time.Now()})
		items, _ := w.take()
		if len(items) != 1 {
			t.Fatalf("%d statuses are due", len(items))
		}
		return items[0]
	}
	crash := next(1, fleet.Crashed)
	crash.read, crash.done, crash.rev = true, true, 7
	w.settle([]*item{crash})
	if it := next(1, fleet.Online); it.read {
		t.Error("a status of the ended generation is written without reading the record")
	}
	if it := next(2, fleet.Online); !it.read || it.rev != 7 {
		t.Errorf("the record is read again before a status of the next generation: %+v", it)
	}
}

func TestRefusedStatusDoesNotBlockOthers(t *testing.T) {
	c := storetest.New(t)
	session, err := store.OpenSession(t.Context(), c, keys.Session("nodeagent", "n1"), cluster.Session{}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(t.Context())
	var said bytes.Buffer
	w := newWriter(Config{
		Store: c, Log: slog.New(slog.NewTextHandler(&said, nil)), CheckSession: func() {},
		Fence: func() (store.Fence, bool) { return session.Fence(), true },
	}, func(fleet.InstanceID, machine.Event) {})
	report := func(id fleet.InstanceID, message, address string) {
		w.report(fleet.Status{Instance: id, Group: "g", Node: "n1", Generation: 1, State: fleet.Preparing, Message: message, HostAddress: address, ChangedAt: time.Now()})
	}
	large := strings.Repeat("x", 100<<10)
	for n := range 30 { // together 3 MiB, more than etcd and gRPC accept
		report(fleet.InstanceID(fmt.Sprint("ok", n)), large, "")
	}
	report("huge", "why", strings.Repeat("a", 1700<<10)) // more than etcd accepts
	report("vast", "why", strings.Repeat("a", 5<<20))    // more than gRPC sends
	report("hopeless", "why", "")
	w.mu.Lock()
	w.slots["hopeless"].want.TokenHash = large + strings.Repeat("a", 2<<20) // shorten does not cut it
	w.mu.Unlock()

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	within, done := context.WithTimeout(t.Context(), 5*time.Minute)
	defer done()
	if err := w.flush(within); err != nil {
		t.Errorf("statuses are not written: %v", err)
	}
	cancel()
	running.Wait()
	for n := range 30 {
		if st, err := store.Get(t.Context(), c, keys.Status(fleet.InstanceID(fmt.Sprint("ok", n)))); err != nil || st.Message != large {
			t.Errorf("status %d: %d bytes, %v", n, len(st.Message), err)
		}
	}
	for _, id := range []fleet.InstanceID{"huge", "vast"} {
		st, err := store.Get(t.Context(), c, keys.Status(id))
		if err != nil || st.State != fleet.Preparing || st.HostAddress != "" || !strings.HasPrefix(st.Message, "why; the store refused") {
			t.Errorf("%s: %.200q at %d bytes, %v", id, st.Message, len(st.HostAddress), err)
		}
	}
	if _, err := store.Get(t.Context(), c, keys.Status("hopeless")); !errs.Is(err, errs.NotFound) {
		t.Errorf("the status that cannot be written: %v", err)
	}
	for _, id := range []string{"huge", "vast", "hopeless"} {
		if !strings.Contains(said.String(), "instance="+id) {
			t.Errorf("the log does not name %s", id)
		}
	}
}
