package dashboard_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/dashboard/browser"
	"github.com/orreryhq/orrery/libs/await"
)

// line is a condition: the console shows a line.
func line(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".console-line")].some((l) => l.textContent === %q)`, text)
}

func TestAConsoleFollowsARestart(t *testing.T) {
	s := newSite(t)
	s.group("talk", 1, nil)
	p := s.asAdmin()
	p.Go("#/instances/talk-1")
	p.Until("the first run is shown", line("ready"))
	before := s.admin.Instance("talk-1")
	s.admin.Do("POST", "/api/v1/services/talk-1/restart", nil).OK(200)
	await.That(t, "it runs again", func() string {
		now := s.admin.Instance("talk-1")
		return await.Unless(now.State == "RUNNING" && now.PID != before.PID, "%+v", now)
	})
	p.Until("the second run is shown too", `[...document.querySelectorAll(".console-line")].filter((l) => l.textContent === "ready").length === 2`)
	p.Fill("Type into talk-1", "once")
	p.Key(kb.Enter + kb.Enter + kb.Enter)
	p.Fill("Type into talk-1", "twice")
	p.Key(kb.Enter)
	p.Until("the lines arrive in order, each once", `[...document.querySelectorAll(".console-line:not(.note)")].map((l) => l.textContent).join().endsWith("ready,once,twice")`)
	p.Key(kb.ArrowUp)
	p.Key(kb.ArrowDown)
	p.Until("the arrows end at an empty line", `document.activeElement.value === ""`)
}

func TestAProgressBarShowsItsEnd(t *testing.T) {
	s := newSite(t)
	s.group("get", 1, map[string]any{"command": `printf 'Downloading  10%%\rDownloading  20%%\rDownloading 100%%\r\n'; exec cat`})
	p := s.asAdmin()
	p.Go("#/instances/get-1")
	p.Until("the stream shows the end of the line", line("Downloading 100%"))
	p.Click("Beginning")
	p.Until("the log does too", line("Downloading 100%"))
	p.Fill("Search the log", "Downloading")
	p.Key(kb.Enter)
	p.Sees("1 line matches")
	p.Until("what was found does too", line("Downloading 100%"))
}

func TestALongLogKeepsItsPlace(t *testing.T) {
	s := newSite(t)
	s.group("long", 1, map[string]any{"command": `seq -f "line %06g of a log that is longer than one answer" 1 8000; head -c 3000 /dev/zero | tr '\0' W; echo; echo end; exec cat`})
	p := s.asAdmin()
	p.Go("#/instances/long-1")
	p.Until("the end is shown", line("end"))
	p.Until("a long line can be scrolled to its end", `(() => { const v = document.querySelector(".console-view"); return v.scrollWidth > 15000; })()`)
	var at struct{ Before, After string }
	p.Into(&at, `(async () => {
		const view = document.querySelector(".console-view"), frame = () => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
		const top = () => [...document.querySelectorAll(".console-line")].find((l) => l.getBoundingClientRect().bottom > view.getBoundingClientRect().top + 1).textContent;
		view.scrollTop = 20 * 18;
		await frame();
		const before = top(), height = view.scrollHeight;
		while (view.scrollHeight === height) await frame(); // older lines come
		await frame();
		return { before, after: top() };
	})()`)
	if at.Before != at.After {
		t.Errorf("older lines moved the view from %q to %q", at.Before, at.After)
	}
	p.Click("Beginning")
	p.Until("the beginning is shown", line("line 000001 of a log that is longer than one answer"))
	var broken []string
	p.Into(&broken, `(async () => {
		const view = document.querySelector(".console-view"), seen = new Map();
		const wait = (n) => new Promise((r) => setTimeout(r, n));
		for (let idle = 0; idle < 100 && !seen.has("end"); ) {
			const before = view.scrollTop;
			for (const l of document.querySelectorAll(".console-line")) seen.set(l.textContent, true);
			view.scrollTop += view.clientHeight / 2;
			await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
			for (const l of document.querySelectorAll(".console-line")) seen.set(l.textContent, true);
			if (view.scrollTop === before) idle++, await wait(100);
			else idle = 0;
		}
		view.scrollTop = view.scrollHeight; // some lines below those in view were drawn too
		const odd = [...seen.keys()].filter((l) => !/^(line \d{6} of a log that is longer than one answer|W+|end)$/.test(l));
		for (let n = 1; n <= 8000; n++) if (!seen.has("line " + String(n).padStart(6, "0") + " of a log that is longer than one answer")) odd.push("missing " + n);
		return odd.slice(0, 10);
	})()`)
	if len(broken) > 0 {
		t.Errorf("walking from the beginning to the end shows %q", broken)
	}
	p.Eval(`getSelection().selectAllChildren([...document.querySelectorAll(".console-line")].pop())`)
	s.admin.Do("POST", "/api/v1/services/long-1/command", map[string]any{"command": "more"}).OK(200)
	p.Until("the answer arrives", line("more"))
	p.Until("what was selected is still selected", `getSelection().toString() === "end"`)
}

func TestAReplacedInstanceIsListedOnce(t *testing.T) {
	s := newSite(t)
	s.group("web", 1, nil)
	p := s.asAdmin()
	p.Go("#/instances")
	p.Until("it runs", `document.querySelector(".list-row .badge.good")`)
	p.Until("the page is live", `document.querySelector(".live.good")`)
	for range 2 {
		before := s.admin.AwaitRunning("web", 1)[0]
		s.admin.Do("POST", "/api/v1/services/"+before.UID+"/stop", nil).OK(200)
		await.That(t, "another one runs", func() string {
			now := s.admin.Running("web")
			return await.Unless(len(now) == 1 && now[0].UID != before.UID, "%+v", now)
		})
	}
	running := s.admin.AwaitRunning("web", 1)[0]
	var names []string
	p.Until("the page shows the one that runs", fmt.Sprintf(`document.querySelector(".list-row a[href='#/instances/%s']")`, running.UID))
	p.Into(&names, `[...document.querySelectorAll(".list-row .cell-name")].map((c) => c.textContent)`)
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			t.Errorf("the list has %s more than once: %v", n, names)
		}
		seen[n] = true
	}
}

func TestALoginThatEndsUnderADialogLosesNothing(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "ops", "password": "correct horse battery", "role": "OPERATOR"}).OK(201)
	p := s.as("ops", "correct horse battery")
	p.Go("#/groups/lobby")
	p.Click("Scale")
	p.Sees("Nothing changes")
	s.admin.Do("DELETE", "/api/v1/users/ops/sessions", nil).OK(204)
	p.Fill("Number of instances", "2")
	p.Sees("Your login has ended")
	p.Key(kb.Escape)
	p.Until("the login stays", `document.querySelector(".cover").open && document.activeElement.closest(".cover")`)
	p.Fill("Password", "correct horse battery")
	p.Click("Log in")
	p.Until("the dialog is back with what was typed", `!document.querySelector(".cover") && document.querySelector("#f-scale").value === "2"`)
	p.Click("Try again")
	p.Sees("lobby-2")
	p.Click("Scale")
	s.admin.AwaitRunning("lobby", 2)
}

func TestNoPreviewNoAct(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 2, nil)
	p := s.asAdmin()
	p.Go("#/groups/lobby")
	p.Click("Scale")
	p.Sees("Nothing changes")
	// The form is sent before the server said what the new number does.
	p.Eval(`(() => {
		const e = document.querySelector("#f-scale");
		e.value = "0";
		e.dispatchEvent(new Event("input", { bubbles: true }));
		e.form.requestSubmit();
	})()`)
	p.Sees("up to 2 of its 2 instances would stop")
	var g struct{ MinInstances int }
	s.admin.Do("GET", "/api/v1/groups/lobby", nil).OK(200, &g)
	if g.MinInstances != 2 {
		t.Errorf("the group was scaled to %d before its preview was shown", g.MinInstances)
	}
	p.Fill("Number of instances", "3")
	p.Sees("lobby-3")
	p.Click("Scale")
	p.Sees("as its minimum")
	// Another user changes the group. Undo must not revert their change.
	s.admin.Do("PATCH", "/api/v1/groups/lobby", map[string]any{"minInstances": 4}).OK(200)
	p.Click("Undo")
	p.Sees("Somebody else changed this in the meantime")
	s.admin.Do("GET", "/api/v1/groups/lobby", nil).OK(200, &g)
	if g.MinInstances != 4 {
		t.Errorf("undo changed minInstances to %d", g.MinInstances)
	}
}

func TestAnEmptyNumberIsNotZero(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	p := s.asAdmin()
	p.Go("#/groups/lobby?tab=settings")
	p.Fill("Memory (MiB)", "")
	p.Sees("A number is needed here")
	p.Until("it cannot be saved", `[...document.querySelectorAll("main button")].find((b) => b.textContent === "Review and save").disabled`)
	p.Fill("Memory (MiB)", "24")
	p.Lacks("A number is needed here")
	p.Click("Review and save")
	p.Click("Save")
	p.Sees("Saved")
	var g struct{ MemoryMb int }
	s.admin.Do("GET", "/api/v1/groups/lobby", nil).OK(200, &g)
	if g.MemoryMb != 24 {
		t.Errorf("the group has %d MiB", g.MemoryMb)
	}
	p.Click("Scale")
	p.Sees("Nothing changes")
	p.Fill("Number of instances", "")
	p.Until("no number has no preview", `!document.querySelector("dialog .preview")`)
	p.Key(kb.Enter)
	p.Until("the dialog waits for a number", `document.querySelector("dialog #f-scale:invalid")`)
	p.Fill("Number of instances", "2")
	p.Sees("lobby-2")
	p.Click("Scale")
	s.admin.AwaitRunning("lobby", 2)
}

func TestDecisionsAboutADeploymentHaveAPreview(t *testing.T) {
	s := newSite(t)
	s.group("web", 2, nil)
	p := s.asAdmin()
	deploy := func() (promoted func() bool) {
		t.Helper()
		var d struct{ Revision int }
		s.admin.Do("POST", "/api/v1/groups/web/deploy", map[string]any{"strategy": "CANARY", "canaryInstances": 1, "minHealthySeconds": 3600}).OK(202, &d)
		return func() bool {
			var now struct{ Promoted bool }
			s.admin.Do("GET", fmt.Sprintf("/api/v1/groups/web/deployments/%d", d.Revision), nil).OK(200, &now)
			return now.Promoted
		}
	}
	promoted := deploy()
	p.Go("#/groups/web?tab=deployments")
	p.Click("Cancel")
	p.Sees("What will happen")
	p.Sees("CANCELLED")
	p.Click("Cancel the deployment")
	p.Until("it is cancelled", `document.querySelector("article .badge").textContent === "Cancelled"`)
	if promoted() {
		t.Error("the deployment that was cancelled is promoted")
	}
	promoted = deploy()
	p.Click("Promote")
	p.Sees("What will happen")
	p.Until("the preview shows the change", `document.querySelector("dialog .preview").textContent.includes("promoted")`)
	if promoted() {
		t.Error("the preview promoted the deployment")
	}
	p.Click("Promote")
	await.That(t, "it is promoted", func() string { return await.Unless(promoted(), "not yet") })
}

func TestTabsOfOneLogin(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	s.admin.Do("POST", "/api/v1/roles", map[string]any{"name": "READER", "permissions": []string{"groups.view"}}).OK(201)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "rita", "password": "correct horse battery", "role": "READER"}).OK(201)
	first := s.as("rita", "correct horse battery")
	first.Go("#/groups")
	first.Sees("Not live") // a reader may not follow events
	first.Sees("lobby")
	second := first.Another()
	second.Go("#/groups")
	second.Sees("Not live")
	second.Sees("lobby")
	logOut := func(p *browser.Tab) {
		p.Hold("k")
		p.Until("the search is open", `document.activeElement.getAttribute("role") === "combobox"`)
		p.Type("log out")
		p.Key(kb.Enter)
	}
	logOut(second)
	second.Until("the tab shows the login and nothing else", `document.querySelector(".login") && !document.querySelector(".frame")`)
	second.Lacks("lobby")
	first.Until("the other tab shows the login and nothing else", `document.querySelector(".login") && !document.querySelector(".frame")`)
	first.Lacks("lobby")
	// Another user logs in: no tab shows what the first one saw.
	second.LogIn("admin", s.password())
	second.Until("the tab is live", `document.querySelector(".live.good")`)
}

func TestPermissionsThatChangeWhileThePageIsOpen(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	s.admin.Do("POST", "/api/v1/roles", map[string]any{"name": "WATCHER", "permissions": []string{"groups.view", "events.stream"}}).OK(201)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "will", "password": "correct horse battery", "role": "WATCHER"}).OK(201)
	p := s.as("will", "correct horse battery")
	p.Until("the page is live", `document.querySelector(".live.good")`)
	p.Until("instances are not offered", `![...document.querySelectorAll("nav a")].some((a) => a.textContent.startsWith("Instances"))`)
	s.admin.Do("PATCH", "/api/v1/roles/WATCHER", map[string]any{"permissions": []string{"groups.view", "events.stream", "instances.view"}}).OK(200)
	p.Eval(`document.dispatchEvent(new Event("visibilitychange"))`) // the reader comes back to the tab
	p.Until("instances are offered, and counted", `[...document.querySelectorAll("nav a")].some((a) => a.textContent === "Instances1")`)
	s.admin.Do("PATCH", "/api/v1/roles/WATCHER", map[string]any{"permissions": []string{"events.stream", "instances.view"}}).OK(200)
	p.Eval(`document.dispatchEvent(new Event("visibilitychange"))`) // the reader comes back to the tab
	p.Until("groups are not offered any more", `![...document.querySelectorAll("nav a")].some((a) => a.textContent.startsWith("Groups"))`)
	p.Go("#/groups")
	p.Lacks("lobby")
}

func TestAddressesThatNamePropertiesBreakNothing(t *testing.T) {
	s := newSite(t)
	p := s.asAdmin()
	for _, hash := range []string{"#/events?kind=constructor", "#/groups/constructor", "#/constructor", "#/__proto__/x", "#/instances/__proto__?tab=constructor", "#/topology?by=__proto__", "#/groups?sort=constructor", "#/%E0%A4%A"} {
		p.Go(hash)
		p.Until(hash+" is there", `document.querySelector("main h1, main .empty, main .notice") && !document.querySelector("main .loading")`)
		p.Until("the frame works", `document.querySelector("nav a.brand")`)
	}
}

func TestAnOpenPageNoticesThatTheDashboardWasUpdated(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	gateway, err := url.Parse(s.API())
	if err != nil {
		t.Fatal(err)
	}
	// version is in the paths of the page's files. The gateway serves its files under any.
	version, next := "", "0123456789abcdef"
	var updated atomic.Bool
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(gateway)
			r.Out.Host = r.In.Host
			r.Out.Header.Del("Accept-Encoding")
			if updated.Load() && r.In.URL.Path == "/" {
				r.Out.Header.Del("If-None-Match")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if !updated.Load() || r.Request.URL.Path != "/" {
				return nil
			}
			index, err := io.ReadAll(r.Body)
			index = bytes.ReplaceAll(index, []byte(version), []byte(next))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(index)), int64(len(index))
			r.Header.Set("Content-Length", strconv.Itoa(len(index)))
			r.Header.Set("ETag", `"next"`)
			return err
		},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if updated.Load() && strings.HasPrefix(r.URL.Path, "/ui/"+version) {
			http.NotFound(w, r) // as a file that the next version no longer has
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p := s.Open(t, front.URL)
	p.LogIn("admin", s.password())
	p.Go("#/groups/lobby?tab=settings")
	p.Fill("Memory (MiB)", "24")
	p.Until("the page is live", `document.querySelector(".live.good")`)
	p.Into(&version, `document.querySelector("script[type=module]").src.split("/").at(-2)`)
	updated.Store(true)
	front.CloseClientConnections() // as a gateway that ends
	p.Sees("The dashboard was updated")
	p.Until("what was typed is still there", `document.querySelector("#f-memorymb").value === "24"`)
	p.Click("Discard")
	p.Until("it is discarded", `document.querySelector("#f-memorymb").value === "16"`)
	p.Go("#/topology")
	p.Sees("The gateway has another version of this page")
	p.Click("Load again")
	p.Until("the page is there", `document.querySelector(".nodebox")`)
	p.Until("the page has the new version", fmt.Sprintf(`document.querySelector("script[type=module]").src.includes(%q)`, next))
	p.Lacks("The dashboard was updated")
}

func TestAGatewayThatAnswersNothingIsNoticed(t *testing.T) {
	s := newSite(t)
	front := before(t, s)
	p := s.Open(t, "http://"+front.Address())
	p.LogIn("admin", s.password())
	p.Until("the page is live", `document.querySelector(".top .live.good")`)
	front.Set(proxy.Fault{CutUp: true, CutDown: true})
	p.Until("the page says that it is offline", `document.querySelector(".top .live.bad")`)
	front.Set(proxy.Fault{})
	p.Until("the page is live again", `document.querySelector(".top .live.good")`)
}

func TestAMistypedPasswordEndsNoLogin(t *testing.T) {
	s := newSite(t)
	p := s.asAdmin()
	p.Go("#/settings?tab=profile")
	p.Fill("Current password", "not the password")
	p.Fill("New password", "correct horse battery")
	p.Fill("New password again", "correct horse battery")
	p.Click("Change the password")
	p.Sees("the current password is wrong")
	p.Until("the login goes on", `!document.querySelector(".cover") && JSON.parse(localStorage.getItem("orrery.session"))`)
}

func TestBackClosesADialog(t *testing.T) {
	s := newSite(t)
	p := s.asAdmin()
	p.Go("#/nodes")
	p.Go("#/groups")
	p.Click("New group")
	p.Until("the dialog is open", `document.querySelector("dialog[open]")`)
	p.Eval(`history.back()`)
	p.Until("the page before, without the dialog", `document.querySelector("h1")?.textContent === "Nodes" && !document.querySelector("dialog[open]")`)
}
