package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"

	"github.com/orreryhq/orrery/e2e/dashboard/browser"
)

// uiScroll is how long the list is scrolled.
const uiScroll = 5 * time.Second

// measureScroll scrolls the list of all instances with the wheel, and measures from a trace of the
// browser how long the page's scripts and layout take in each frame. While others use the machine, only
// the processor time says what the page costs.
func (u *ui) measureScroll() error {
	progress("scrolling")
	return asTest(func(t testing.TB) error {
		p := u.open(t, "#/instances")
		p.Until("rows are shown", `document.querySelector(".list-row")`)
		events, err := traced(p, func() error {
			for began := time.Now(); time.Since(began) < uiScroll; {
				// The browser wants both, and a zero would be left out.
				down := func(m *input.DispatchMouseEventParams) { m.DeltaX, m.DeltaY = 1, 400 }
				if err := chromedp.Do(p.Context(), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseWheel, 640, 500, down)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		frames := frameTimes(events)
		if len(frames) == 0 {
			return errors.New("the trace has no frames")
		}
		for n := range events {
			events[n].Ts, events[n].Dur = events[n].TTS, events[n].TDur
		}
		busy := frameTimes(events)
		var far float64
		p.Into(&far, "scrollY")
		progress("%d frames, %.0f pixels", len(frames), far)
		u.report("ui_scroll_frame_p50_ms", quantile(frames, 0.5), "ms", -1)
		u.report("ui_scroll_frame_p95_ms", quantile(frames, 0.95), "ms", uiFrame)
		u.report("ui_scroll_frame_cpu_p95_ms", quantile(busy, 0.95), "ms", uiFrame)
		u.report("ui_scroll_frame_cpu_p99_ms", quantile(busy, 0.99), "ms", -1)
		return nil
	})
}

// traceEvent is an event of a trace of the browser: when it began and how long it took in microseconds,
// and the same by the processor time of its thread.
type traceEvent struct {
	Name      string
	Pid, Tid  int
	Ts, Dur   float64
	TTS, TDur float64
}

// traced returns what a tab's browser did while do ran.
func traced(p *browser.Tab, do func() error) ([]traceEvent, error) {
	var (
		mu       sync.Mutex
		events   []traceEvent
		failed   error
		complete = make(chan struct{})
	)
	err := chromedp.Listen(p.Context(), func(ev any) {
		switch e := ev.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			defer mu.Unlock()
			for _, raw := range e.Value {
				var te traceEvent
				if err := json.Unmarshal(raw, &te); err != nil {
					failed = err
				}
				events = append(events, te)
			}
		case *tracing.EventTracingComplete:
			if e.DataLossOccurred {
				mu.Lock()
				failed = errors.New("the trace is incomplete")
				mu.Unlock()
			}
			close(complete)
		}
	})
	if err != nil {
		return nil, err
	}
	config := &tracing.TraceConfig{IncludedCategories: []string{"devtools.timeline", "v8"}, ExcludedCategories: []string{"*"}}
	if _, err := chromedp.Call(p.Context(), tracing.Start, tracing.StartParams{TraceConfig: config}); err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	if _, err := chromedp.Call(p.Context(), tracing.End, struct{}{}); err != nil {
		return nil, err
	}
	<-complete
	mu.Lock()
	defer mu.Unlock()
	return events, failed
}

// pageWork names the work of a page in a trace: scripts, collections of their garbage, and layout.
func pageWork(name string) bool {
	switch name {
	case "FunctionCall", "EvaluateScript", "EventDispatch", "FireAnimationFrame", "TimerFire", "RunMicrotasks",
		"MinorGC", "MajorGC", "UpdateLayoutTree", "Layout":
		return true
	}
	return false
}

// frameEnd names the last step of a frame on the main thread.
const frameEnd = "Layerize"

// frameTimes returns how long the page's work took in each frame, on the main thread with the most work.
func frameTimes(events []traceEvent) []time.Duration {
	type thread struct{ pid, tid int }
	work, most := map[thread]float64{}, thread{}
	for _, e := range events {
		if of := (thread{e.Pid, e.Tid}); pageWork(e.Name) {
			if work[of] += e.Dur; work[of] > work[most] {
				most = of
			}
		}
	}
	events = slices.DeleteFunc(slices.Clone(events), func(e traceEvent) bool {
		return thread{e.Pid, e.Tid} != most || e.Name != frameEnd && !pageWork(e.Name)
	})
	slices.SortStableFunc(events, func(a, b traceEvent) int { return cmp.Compare(a.Ts, b.Ts) })
	var frames []time.Duration
	inFrame, end := 0.0, 0.0 // end of the work that was counted, so that nested work counts once
	for _, e := range events {
		if e.Name == frameEnd {
			frames = append(frames, time.Duration(inFrame*float64(time.Microsecond)))
			inFrame = 0
			continue
		}
		if last := e.Ts + e.Dur; last > end {
			inFrame += last - max(e.Ts, end)
			end = last
		}
	}
	return frames
}
