package controller

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

// What is forgotten while its end is not written yet, as when its placement was removed,
// is told all the same where somebody may read it.
func TestTheEndOfWhatIsForgottenIsWrittenWhereThereIsARecord(t *testing.T) {
	c := storetest.New(t)
	session, err := store.OpenSession(t.Context(), c, store.SessionKey("nodeagent", "n1"), fleet.Session{}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(t.Context())
	var open atomic.Bool
	w := newWriter(Config{
		Store: c, Log: slog.New(slog.DiscardHandler), Doubt: func() {},
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
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	if st, err := store.Get(t.Context(), c, store.StatusKey("told")); err != nil || st.State != fleet.Failed {
		t.Errorf("its record says %s, %v", st.State, err)
	}
	for _, id := range []fleet.InstanceID{"unseen", "unknown"} {
		if _, err := store.Get(t.Context(), c, store.StatusKey(id)); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s has a record now: %v", id, err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.slots) > 0 {
		t.Errorf("%d are still known", len(w.slots))
	}
}
