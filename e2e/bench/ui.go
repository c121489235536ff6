package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/orreryhq/orrery/e2e/dashboard/browser"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// The fleets whose dashboard is measured.
	uiSmallNodes, uiSmallInstances = 10, largeGroups
	uiLargeNodes, uiLargeInstances = 1000, 10_000
	// uiLoads is how often a page is loaded, each time with an empty cache.
	uiLoads = 9
	// uiEvents is how many events a page receives before its memory is measured.
	uiEvents = 60_000
	// The bars: ms, ms, KiB, ms of a frame, frames per second, ms, MiB.
	uiFirstPaint, uiInteractive, uiBytes, uiFrame, uiFrames, uiEvent, uiHeap = 500, 1000, 120, 16, 30, 100, 150
)

// inBrowser runs measure with a real browser, which the families of the dashboard need.
func inBrowser(measure func(*browser.Browser) error) error {
	if _, err := exec.LookPath(browser.Program); err != nil {
		progress("skipping: %v", err)
		return nil
	}
	return asTest(func(t testing.TB) error { return measure(browser.Start(t)) })
}

// subject is what the browser's driver takes for its test. The other methods of testing.TB are absent.
type subject struct {
	testing.TB
	failed error
	undo   []func()
}

// asTest calls f like a test: a failure of the driver ends f, and what f asked to clean up is cleaned up.
func asTest(f func(testing.TB) error) error {
	s := &subject{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, undo := range slices.Backward(s.undo) {
				undo()
			}
		}()
		s.failed = errors.Join(s.failed, f(s))
	}()
	<-done
	return s.failed
}

func (s *subject) Helper() {}

func (s *subject) Cleanup(f func()) { s.undo = append(s.undo, f) }

func (s *subject) Error(args ...any) {
	s.failed = errors.Join(s.failed, errors.New(fmt.Sprint(args...)))
}

func (s *subject) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

func (s *subject) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// ui is a dashboard that shows a fleet of simulated instances.
type ui struct {
	*bench
	chromium *browser.Browser
	fleet    *largeFleet
	// url is the gateway's, token a login at it.
	url, token string
	// login is the text that the page stores for a login.
	login string
}

// startUI starts a gateway with a fleet, and logs in. stop ends it.
func (b *bench) startUI(ctx context.Context, chromium *browser.Browser, nodes, instances int) (u *ui, stop func(), err error) {
	var undo []func()
	stop = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	name := fmt.Sprint("ui-", instances)
	etcd, err := b.startEtcd(name+"-etcd", func(cfg *embed.Config) { cfg.MaxTxnOps = placeMaxOps })
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, etcd.Close)
	endpoint := "http://" + etcd.Clients[0].Addr().String()
	client, err := store.Dial([]string{endpoint}, store.Options{MaxOps: placeMaxOps})
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() { _ = client.Close() })
	if _, err := client.Join(ctx, time.Now()); err != nil {
		return nil, nil, err
	}
	u = &ui{bench: b, chromium: chromium, fleet: &largeFleet{store: client, nodes: nodes, instances: instances, random: rand.New(rand.NewPCG(7, 8))}}
	progress("seeding %d instances on %d nodes", instances, nodes)
	if err := u.fleet.seed(ctx); err != nil {
		return nil, nil, err
	}
	all, err := b.newGateways(ctx, name, endpoint)
	if err != nil {
		return nil, nil, err
	}
	one, err := all.start(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, one.Kill)
	u.url = one.url
	if u.token, err = all.login(ctx, one); err != nil {
		return nil, nil, err
	}
	password, err := os.ReadFile(all.path("admin-password"))
	if err != nil {
		return nil, nil, err
	}
	return u, stop, u.logIn(strings.TrimSpace(string(password)))
}

// logIn logs in on the page once. Other tabs use this login.
func (u *ui) logIn(password string) error {
	return asTest(func(t testing.TB) error {
		p := u.chromium.Open(t, u.url)
		p.LogIn("admin", password)
		p.Into(&u.login, `localStorage.getItem("orrery.session")`)
		return nil
	})
}

// open opens a page with a login.
func (u *ui) open(t testing.TB, hash string) *browser.Tab {
	p := u.chromium.Blank(t, u.url)
	u.before(t, p, u.login, "")
	p.Go(hash)
	p.Until("the page is live", `document.querySelector(".live.good") && document.querySelector("main h1")`)
	return p
}

// before lets each page that the tab loads begin with a login, if there is one, and a script.
func (u *ui) before(t testing.TB, p *browser.Tab, login, script string) {
	if login != "" {
		script = `localStorage.setItem("orrery.session", ` + quote(login) + "); " + script
	}
	_, err := chromedp.Call(p.Context(), page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `if (location.protocol === "http:") { localStorage.setItem("orrery.language", "en"); ` + script + "}",
	})
	if err != nil {
		t.Fatal(err)
	}
}

// quote returns a text as JavaScript.
func quote(s string) string {
	b, _ := json.Marshal(s) // a text always encodes
	return string(b)
}

// measureUI measures the dashboard of a small fleet of simulated instances: how fast it loads and how
// much, the delay of events, and accessibility.
func measureUI(ctx context.Context, b *bench) error {
	return inBrowser(func(chromium *browser.Browser) error {
		u, stop, err := b.startUI(ctx, chromium, uiSmallNodes, uiSmallInstances)
		if err != nil {
			return err
		}
		defer stop()
		return errors.Join(u.measureLoads(ctx, ""), u.measureEvents(ctx, ""), u.measureAxe())
	})
}

// measureLargeUI measures loads, scrolling, the delay of events and memory with a large fleet.
func measureLargeUI(ctx context.Context, b *bench) error {
	return inBrowser(func(chromium *browser.Browser) error {
		u, stop, err := b.startUI(ctx, chromium, uiLargeNodes, uiLargeInstances)
		if err != nil {
			return err
		}
		defer stop()
		suffix := fmt.Sprint("_", uiLargeInstances)
		return errors.Join(u.measureLoads(ctx, suffix), u.measureScroll(), u.measureEvents(ctx, suffix),
			u.measureBusyEvents(ctx, suffix), u.measureHeap(ctx))
	})
}

// measureAxe counts what axe-core finds on the main pages: those of the navigation, and a group, an
// instance and a node.
func (u *ui) measureAxe() error {
	source, err := os.ReadFile(filepath.Join("dashboard", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		progress("skipping ui_axe_violations: %v; run npm ci in dashboard", err)
		return nil
	}
	return asTest(func(t testing.TB) error {
		p := u.open(t, "#/")
		var hashes []string
		p.Into(&hashes, `[...document.querySelectorAll("nav.nav a")].map((a) => a.getAttribute("href")).filter((h) => h.startsWith("#"))`)
		hashes = append(hashes, "#/groups/group-00", "#/instances/"+string(u.fleet.ids[0])+"?tab=explain", "#/nodes/"+string(placeNode(0)))
		found := 0
		for _, hash := range hashes {
			p.Eval(`document.querySelector("main h1").id = location.hash === ` + quote(hash) + ` ? "" : "of-the-page-before"`)
			p.Go(hash)
			p.Until(hash+" is complete", `document.querySelector("main h1:not(#of-the-page-before)") && !document.querySelector("main .loading")`)
			for _, v := range p.Violations(string(source)) {
				progress("%s: %s", hash, v)
				found++
			}
		}
		progress("axe-core read %d pages", len(hashes))
		u.report("ui_axe_violations", float64(found), "violations", 0)
		return nil
	})
}
