package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/orreryhq/orrery/e2e/dashboard/browser"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/standalone/stack"
)

const (
	// uiEventCount is how many events the delay is measured with.
	uiEventCount = 100
	// uiHeapRate is how many events a second arrive while memory grows, uiHeapBatch of them at once.
	uiHeapRate, uiHeapBatch = 1000, 20
)

// statuses are the statuses of some instances, as they are in etcd.
type statuses struct {
	store *store.Client
	all   []fleet.Status
	next  int
}

func (f *largeFleet) statuses(ctx context.Context, n int) (*statuses, error) {
	s := &statuses{store: f.store}
	for _, id := range f.ids[:n] {
		status, err := store.Get(ctx, f.store, keys.Status(id))
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, status)
	}
	return s, nil
}

// change lets the next instances stop, and those that stop be ready again.
func (s *statuses) change(ctx context.Context, count int) error {
	var writes []store.Write
	var changed []*fleet.Status
	for range count {
		st := &s.all[s.next%len(s.all)]
		s.next++
		if st.State == fleet.Online {
			st.State, st.Reason = fleet.Stopping, fleet.ReasonStopRequested
		} else {
			st.State, st.Reason = fleet.Online, fleet.ReasonReady
		}
		st.ChangedAt = time.Now().UTC()
		writes, changed = append(writes, store.Replace(keys.Status(st.Instance), *st, st.ModRev)), append(changed, st)
	}
	rev, err := s.store.Commit(ctx, store.Txn{Writes: writes})
	for _, st := range changed {
		st.ModRev = rev
	}
	return err
}

// measureEvents changes the instance in the first row of the list of all instances, and measures from
// the arrival of the event at another client to the frame after the one that shows it.
func (u *ui) measureEvents(ctx context.Context, suffix string) error {
	s, err := u.fleet.statuses(ctx, 1)
	if err != nil {
		return err
	}
	listener := &server{ready: stack.Ready{API: u.url}, token: u.token, http: &http.Client{}}
	events, err := listener.events(ctx)
	if err != nil {
		return err
	}
	defer events.close()
	names := map[fleet.State][2]string{fleet.Online: {"RUNNING", "Running"}, fleet.Stopping: {"STOPPING", "Stopping"}}
	var took []time.Duration
	err = asTest(func(t testing.TB) error {
		p := u.open(t, "#/instances")
		p.Until("the first row is shown", `document.querySelector('[data-index="0"] .badge')`)
		p.Eval(`(() => {
			window.shown = [];
			const text = () => document.querySelector('[data-index="0"] .badge')?.textContent;
			let last = text();
			new MutationObserver(() => {
				if (text() === last) return;
				const now = (last = text());
				requestAnimationFrame(() => window.shown.push([now, Date.now()]));
			}).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true });
		})()`)
		for n := range uiEventCount + warmup {
			p.Eval(`window.shown = []`)
			if err := s.change(ctx, 1); err != nil {
				return err
			}
			st := s.all[0]
			heard, err := events.await(string(st.Group), names[st.State][0], string(st.Instance))
			if err != nil {
				return err
			}
			found := fmt.Sprintf(`window.shown.find((s) => s[0] === %q)`, names[st.State][1])
			p.Until("the page shows the event", found)
			var at int64
			p.Into(&at, found+"[1]")
			if n >= warmup {
				took = append(took, time.UnixMilli(at).Sub(heard.at))
			}
			// Events do not come in step with the page's timers.
			pause.For(ctx, 100*time.Millisecond+time.Duration(u.fleet.random.Int64N(int64(200*time.Millisecond))))
		}
		return nil
	})
	if err != nil {
		return err
	}
	u.report("ui_event"+suffix+"_p50_ms", quantile(took, 0.5), "ms", -1)
	u.report("ui_event"+suffix+"_p95_ms", quantile(took, 0.95), "ms", uiEvent)
	return nil
}

// measureBusyEvents is measureEvents while other instances change at a high rate.
func (u *ui) measureBusyEvents(ctx context.Context, suffix string) error {
	others, err := u.fleet.statuses(ctx, len(u.fleet.ids))
	if err != nil {
		return err
	}
	others.all = others.all[1:]
	flooding, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- u.flood(flooding, others, math.MaxInt) }()
	err = u.measureEvents(ctx, suffix+"_busy")
	stop()
	if flooded := <-failed; !errors.Is(flooded, context.Canceled) {
		err = errors.Join(err, flooded)
	}
	return err
}

// heapMiB returns the memory of the page's objects after a collection.
func heapMiB(p *browser.Tab) (float64, error) {
	if _, err := chromedp.Call(p.Context(), heapprofiler.CollectGarbage, struct{}{}); err != nil {
		return 0, err
	}
	usage, err := chromedp.Call(p.Context(), runtime.GetHeapUsage, struct{}{})
	return usage.UsedSize / (1 << 20), err
}

// measureHeap measures the memory of the page before and after many events.
func (u *ui) measureHeap(ctx context.Context) error {
	progress("%d events", u.uiEvents)
	s, err := u.fleet.statuses(ctx, len(u.fleet.ids))
	if err != nil {
		return err
	}
	return asTest(func(t testing.TB) error {
		p := u.open(t, "#/instances")
		p.Until("the first row is shown", `document.querySelector(".list-row .badge")`)
		// The page keeps a number of events, and it is full after a few seconds.
		if err := u.flood(ctx, s, 5*uiHeapRate); err != nil {
			return err
		}
		before, err := heapMiB(p)
		if err != nil {
			return err
		}
		progress("%.1f MiB before them", before)
		began := time.Now()
		if err := u.flood(ctx, s, u.uiEvents); err != nil {
			return err
		}
		rate := float64(u.uiEvents) / time.Since(began).Seconds()
		state := s.all[(s.next-1)%len(s.all)]
		p.Go("#/instances?q=" + string(state.Instance))
		want := map[fleet.State]string{fleet.Online: "Running", fleet.Stopping: "Stopping"}[state.State]
		p.Until("the page shows the last event", fmt.Sprintf(`document.querySelector(".live.good") && document.querySelector(".list-row .badge").textContent === %q`, want))
		after, err := heapMiB(p)
		if err != nil {
			return err
		}
		u.report("ui_heap_mib", after, "MiB", uiHeap)
		u.report("ui_heap_growth_mib_per_100000", (after-before)*100_000/float64(u.uiEvents), "MiB", -1)
		u.report("ui_heap_events_per_s", rate, "1/s", uiHeapRate)
		return nil
	})
}

// flood changes instances at a steady rate.
func (u *ui) flood(ctx context.Context, s *statuses, count int) error {
	start := time.Now()
	for n := 0; n < count; n += uiHeapBatch {
		if late := time.Until(start.Add(time.Duration(n) * time.Second / uiHeapRate)); late > 0 && !pause.For(ctx, late) {
			return ctx.Err()
		}
		if err := s.change(ctx, uiHeapBatch); err != nil {
			return err
		}
	}
	return nil
}
