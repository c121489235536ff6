package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/orreryhq/orrery/libs/pause"
)

// uiQuiet is how long no request may be open until a page is complete.
const uiQuiet = 500 * time.Millisecond

// measureLoads loads the overview with an empty cache, and the page of the login.
func (u *ui) measureLoads(ctx context.Context, suffix string) error {
	complete := fmt.Sprintf(`document.querySelector(".live.good") && document.querySelector(".tile .figure").textContent === (%d).toLocaleString("en")`, u.fleet.instances)
	var paints, interactives []time.Duration
	var bytes float64
	for range uiLoads {
		l, err := u.load(ctx, u.login, complete)
		if err != nil {
			return err
		}
		paints, interactives = append(paints, l.paint), append(interactives, l.complete)
		bytes = max(bytes, l.bytes)
	}
	if suffix == "" { // the number of instances is no part of the first page
		l, err := u.load(ctx, "", `document.querySelector(".login button")`)
		if err != nil {
			return err
		}
		progress("the login is complete after %v, %.0f KiB; the overview has %.0f KiB", l.complete, l.bytes/1024, bytes/1024)
		u.report("ui_kib", max(bytes, l.bytes)/1024, "KiB", uiBytes)
	}
	u.report("ui_first_paint"+suffix+"_ms", quantile(paints, 0.5), "ms", uiFirstPaint)
	u.report("ui_interactive"+suffix+"_ms", quantile(interactives, 0.5), "ms", uiInteractive)
	return nil
}

// loaded is one load of a page: when it painted first and was complete, and the bytes of all answers.
type loaded struct {
	paint, complete time.Duration
	bytes           float64
}

// load loads the page in a new context of the browser, with a login or without. complete is an
// expression of JavaScript.
func (u *ui) load(ctx context.Context, login, complete string) (l loaded, err error) {
	return l, asTest(func(t testing.TB) error {
		p := u.chromium.Blank(t, u.url)
		requests := &traffic{open: map[network.RequestID]bool{}}
		if err := chromedp.Listen(p.Context(), requests.note); err != nil {
			return err
		}
		if _, err := chromedp.Call(p.Context(), network.Enable, network.EnableParams{}); err != nil {
			return err
		}
		u.before(t, p, login, fmt.Sprintf(`
			const watch = new MutationObserver(() => {
				try { if (!(%s)) return; } catch { return; }
				watch.disconnect();
				requestAnimationFrame(() => { window.measured = performance.now(); });
			});
			watch.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });`, complete))
		p.Go("")
		p.Until("the page is complete", `window.measured && performance.getEntriesByName("first-contentful-paint").length`)
		var at struct{ Paint, Complete float64 }
		p.Into(&at, `({ paint: performance.getEntriesByName("first-contentful-paint")[0].startTime, complete: window.measured })`)
		l.paint, l.complete = time.Duration(at.Paint*float64(time.Millisecond)), time.Duration(at.Complete*float64(time.Millisecond))
		l.bytes, err = requests.settled(ctx)
		return err
	})
}

// traffic counts the bytes of answers, as they were on the wire.
type traffic struct {
	mu    sync.Mutex
	open  map[network.RequestID]bool
	bytes float64
	last  time.Time
}

func (r *traffic) note(ev any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		if e.Type != network.ResourceTypeEventSource { // it does not end
			r.open[e.RequestID] = true
		}
	case *network.EventLoadingFinished:
		delete(r.open, e.RequestID)
		r.bytes += e.EncodedDataLength
	case *network.EventLoadingFailed:
		delete(r.open, e.RequestID)
	default:
		return
	}
	r.last = time.Now()
}

// settled waits until no request is open, and returns the bytes.
func (r *traffic) settled(ctx context.Context) (float64, error) {
	for pause.For(ctx, uiQuiet/10) {
		r.mu.Lock()
		bytes, done := r.bytes, len(r.open) == 0 && time.Since(r.last) > uiQuiet
		r.mu.Unlock()
		if done {
			return bytes, nil
		}
	}
	return 0, ctx.Err()
}
