// Package browser drives the dashboard in a real Chromium, as a person does: it finds controls by
// their names, clicks with the mouse and types with the keyboard.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/orreryhq/orrery/libs/await"
)

// Program is the browser. Tests skip without it, unless ORRERY_CI is set.
const Program = "chromium"

// Tab is a page of the dashboard with a login of its own.
type Tab struct {
	t   testing.TB
	ctx context.Context
	api string

	mu sync.Mutex
	// wrong is what the page reported: uncaught exceptions and refused content.
	wrong []string
}

// Browser is a running Chromium. Its tabs do not share logins.
type Browser struct{ ctx context.Context }

// Start starts a browser until the test ends.
func Start(t testing.TB) *Browser {
	t.Helper()
	program, err := exec.LookPath(Program)
	if err != nil {
		if os.Getenv("ORRERY_CI") == "" {
			t.Skip("chromium is not installed")
		}
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("enable-precise-memory-info", true), chromedp.Flag("lang", "en-US"), chromedp.WindowSize(1280, 900))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal("start chromium:", err)
	}
	return &Browser{ctx: ctx}
}

// Open opens the dashboard of a gateway in a tab without a login. The test fails if the page reports
// an error until it ends.
func (b *Browser) Open(t testing.TB, api string) *Tab {
	t.Helper()
	p := b.Blank(t, api)
	p.Go("")
	p.Eval(`localStorage.setItem("orrery.language", "en")`)
	return p
}

// Blank is Open without loading anything yet: the tab has an empty cache and no page.
func (b *Browser) Blank(t testing.TB, api string) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Tab{t: t, ctx: ctx, api: api}
	t.Cleanup(func() {
		p.complain()
		cancel()
	})
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(1280, 900))
	return p
}

// Context returns the context of the tab, for commands of the browser's protocol.
func (p *Tab) Context() context.Context { return p.ctx }

func (p *Tab) note(ev any) {
	e, ok := ev.(*runtime.EventExceptionThrown)
	if !ok {
		return
	}
	text := e.ExceptionDetails.Text
	if x := e.ExceptionDetails.Exception; x != nil {
		text += " " + x.Description
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, text)
}

// complain fails the test for each error that the page reported.
func (p *Tab) complain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.wrong {
		p.t.Error("the page reports:", w)
	}
}

func (p *Tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.screen())
	}
}

// Eval runs JavaScript in the page and returns its value as JSON. It awaits a promise.
func (p *Tab) Eval(script string) string {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]byte](script, func(o *runtime.EvaluateParams) { o.AwaitPromise = new(true) }))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return string(v)
}

// Into runs JavaScript and decodes its value.
func (p *Tab) Into(into any, script string) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.Eval(script)), into); err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
}

// Go opens an address of the dashboard, such as "#/groups".
func (p *Tab) Go(hash string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.api + "/" + hash))
}

// Reload loads the page again.
func (p *Tab) Reload() {
	p.t.Helper()
	p.do(chromedp.Reload())
}

// Size sets the size of the page. Pages narrower than 700 pixels are those of a phone.
func (p *Tab) Size(width, height int64) {
	p.t.Helper()
	options := []chromedp.EmulateViewportOption{}
	if width < 700 {
		options = append(options, chromedp.EmulateMobile)
	}
	p.do(chromedp.EmulateViewport(width, height, options...))
}

// Prefer sets the colours that the system asks for: light or dark.
func (p *Tab) Prefer(scheme string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		p.t.Fatal(err)
	}
}

// Until waits until a JavaScript expression is true. It may fail while the page is not ready.
func (p *Tab) Until(what, expression string) {
	p.t.Helper()
	await.That(p.t, what, func() string {
		if p.Eval("(() => { try { return Boolean("+expression+"); } catch { return false; } })()") == "true" {
			return ""
		}
		return p.screen()
	})
}

// Sees waits until the page shows a text.
func (p *Tab) Sees(text string) {
	p.t.Helper()
	p.Until("the page shows "+text, "document.body.innerText.includes("+quoted(text)+")")
}

// Lacks waits until the page does not show a text.
func (p *Tab) Lacks(text string) {
	p.t.Helper()
	p.Until("the page does not show "+text, "!document.body.innerText.includes("+quoted(text)+")")
}

// screen describes what the page shows, for messages.
func (p *Tab) screen() string {
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("location.hash + '\\n' + document.body.innerText.slice(0, 3000)"))
	if err != nil {
		return err.Error()
	}
	return v
}

// find is a function of the page: it returns the visible control of a kind with a name, in the
// dialog on top if there is one.
const find = `(kind, name) => {
	const open = [...document.querySelectorAll("dialog[open], .cover")];
	const root = open.length ? open[open.length - 1] : document;
	const named = (e) => {
		const label = e.getAttribute("aria-label") ?? (e.labels?.[0]?.querySelector("span")?.firstChild?.textContent ?? e.labels?.[0]?.textContent) ?? e.textContent;
		return label.trim().replace(/\s+/g, " ");
	};
	const all = [...root.querySelectorAll(kind)].filter((e) => e.getClientRects().length && !e.disabled);
	return all.find((e) => named(e) === name);
}`

const (
	controls = "button, a, [role=option], summary, input[type=checkbox]"
	inputs   = "input:not([type=checkbox]), textarea, select"
)

// Click clicks the button or link with a name. It clicks again if the control moved away before the
// mouse was pressed.
func (p *Tab) Click(name string) {
	p.t.Helper()
	await.That(p.t, fmt.Sprintf("there is %q to click", name), func() string {
		var at *struct{ X, Y float64 }
		p.Into(&at, fmt.Sprintf(`(async () => {
			const e = (%s)(%q, %s);
			if (!e) return null;
			e.scrollIntoView({ block: "center", inline: "center" });
			const place = async () => {
				await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
				const b = e.getBoundingClientRect();
				return { x: b.x + b.width / 2, y: b.y + b.height / 2 };
			};
			const before = await place(), now = await place(); // it may be moving in
			if (!e.isConnected || before.x !== now.x || before.y !== now.y) return null;
			window.wasClicked = false;
			e.addEventListener("click", () => { window.wasClicked = true; }, { once: true, capture: true });
			return now;
		})()`, find, controls, quoted(name)))
		if at == nil {
			return p.screen()
		}
		p.do(chromedp.MouseClickXY(at.X, at.Y))
		// A click that loads another page takes the mark away.
		if p.Eval(`window.wasClicked === false`) == "true" {
			return "the click met something else\n" + p.screen()
		}
		return ""
	})
}

// Fill replaces the text of the input with a name, or chooses in a list.
func (p *Tab) Fill(name, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("there is %q to fill", name), fmt.Sprintf("(%s)(%q, %s)", find, inputs, quoted(name)))
	chosen := p.Eval(fmt.Sprintf(`(() => {
		const e = (%s)(%q, %s);
		e.focus();
		if (e.tagName !== "SELECT") { e.select(); return false; }
		e.value = %s;
		e.dispatchEvent(new Event("change", { bubbles: true }));
		return true;
	})()`, find, inputs, quoted(name), quoted(text)))
	if chosen == "true" {
		return
	}
	if text == "" {
		p.Key(kb.Delete)
		return
	}
	p.Type(text)
}

// Key presses keys, such as kb.Enter. As with a real keyboard, a key types no character when the
// page handles it.
func (p *Tab) Key(keys string) {
	p.t.Helper()
	p.press(keys, 0)
}

func (p *Tab) press(keys string, modifiers chromedp.Modifier) {
	p.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := *events[0], *events[len(events)-1]
		if modifiers == 0 && len(events) > 2 { // a key down with a text becomes a character
			down.Text = events[1].Text
		}
		for _, ev := range []input.DispatchKeyEventParams{down, up} {
			ev.Modifiers |= int64(modifiers)
			if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, ev); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// Hold presses a key together with Ctrl.
func (p *Tab) Hold(key string) {
	p.t.Helper()
	p.press(key, chromedp.ModifierCtrl)
}

// LogIn logs in with a password.
func (p *Tab) LogIn(user, password string) {
	p.t.Helper()
	p.Fill("User name", user)
	p.Fill("Password", password)
	p.Click("Log in")
	p.Until("the login is done", `document.querySelector(".frame") && !document.querySelector(".login")`)
}

// Picture writes what the page shows to a file of e2e/screenshots.
func (p *Tab) Picture(dir, name string) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Violations lists what axe-core, whose source is given, finds on the page by the rules of WCAG 2.2
// AA.
func (p *Tab) Violations(source string) []string {
	p.t.Helper()
	p.Eval(source + "; 0")
	var found []string
	p.Into(&found, `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + (n.any[0]?.message ?? "")).join(" | ")))`)
	return found
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // strings always encode
		panic(err)
	}
	return string(b)
}

// Type types a text where the cursor is.
func (p *Tab) Type(text string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		p.t.Fatal(err)
	}
}

// Another opens a second tab of the same browser profile, which shares the login.
func (p *Tab) Another() *Tab {
	p.t.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx)
	other := &Tab{t: p.t, ctx: ctx, api: p.api}
	p.t.Cleanup(func() {
		other.complain()
		cancel()
	})
	if err := chromedp.Listen(ctx, other.note); err != nil {
		p.t.Fatal(err)
	}
	other.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(p.api+"/"))
	return other
}

// Close closes the page, as a person closes a tab. The browser stays.
func (p *Tab) Close() {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, page.Navigate, page.NavigateParams{URL: "about:blank"}); err != nil {
		p.t.Fatal(err)
	}
}

// Before runs JavaScript in every page before its own.
func (p *Tab) Before(script string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		p.t.Fatal(err)
	}
}
