// Package dashboard_test uses the dashboard as people do, in a real browser and against a running
// Orrery. The tests run when ORRERY_E2E is processes: make e2e.
package dashboard_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/dashboard/browser"
	"github.com/orreryhq/orrery/libs/await"
)

func TestMain(m *testing.M) {
	if os.Getenv("ORRERY_E2E") != "processes" {
		fmt.Println("make e2e runs the browser tests")
		return
	}
	code := m.Run()
	cluster.Cleanup()
	os.Exit(code)
}

// site is a cluster with a browser in front of it.
type site struct {
	cluster.Local
	*browser.Browser
	t     *testing.T
	admin *cluster.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	b := browser.Start(t) // first: without a browser there is nothing to start
	c := cluster.Start(t, cluster.Options{})
	return &site{Local: c, Browser: b, t: t, admin: cluster.Login(t, c)}
}

// as opens a tab with a login.
func (s *site) as(user, password string) *browser.Tab {
	s.t.Helper()
	p := s.Open(s.t, s.API())
	p.LogIn(user, password)
	return p
}

func (s *site) password() string {
	s.t.Helper()
	b, err := os.ReadFile(s.PasswordFile())
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (s *site) asAdmin() *browser.Tab {
	s.t.Helper()
	return s.as("admin", s.password())
}

// before returns a proxy before a gateway. Its address stays when the gateway's changes.
func before(t *testing.T, gateway cluster.Cluster) *proxy.Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(gateway.API(), "http://"))
	})
	t.Cleanup(p.Close)
	return p
}

// group declares a group of shells that repeat what they read.
func (s *site) group(name string, minimum int, more map[string]any) {
	s.t.Helper()
	spec := map[string]any{"name": name, "command": "echo ready; exec cat", "minInstances": minimum, "memoryMb": 16, "stopCommand": "", "shutdownGraceSeconds": 1}
	for k, v := range more {
		spec[k] = v
	}
	s.admin.Do("POST", "/api/v1/groups", spec).OK(201)
	s.admin.AwaitRunning(name, minimum)
}

func TestFirstLoginAndFirstServer(t *testing.T) {
	s := newSite(t)
	p := s.Open(t, s.API())
	p.Sees("The gateway's log names the file")
	p.Fill("User name", "admin")
	p.Fill("Password", "wrong")
	p.Click("Log in")
	p.Until("the refusal is shown", `document.querySelector(".login [role=alert]")`)
	p.LogIn("admin", s.password())
	p.Sees("Start your first server")
	p.Sees("One node is ready.")
	p.Click("Create a group")
	p.Sees("1 starts") // the server's own preview
	p.Sees("echo-1 → node-1")
	p.Click("Create")
	p.Sees("echo was created")
	p.Until("the instance runs", `document.querySelector(".list-row .badge.good")`)
	p.Click("echo-1")
	p.Sees("I am echo-1 on port")
	p.Fill("Type into echo-1", "hello from the page")
	p.Key(kb.Enter)
	p.Until("the console repeats it", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent === "hello from the page")`)
	p.Key(kb.ArrowUp)
	p.Until("the arrow brings the line back", `document.activeElement.value === "hello from the page"`)
}

func TestACrashIsSeenAndHealed(t *testing.T) {
	s := newSite(t)
	s.group("shop", 1, nil)
	p := s.asAdmin()
	p.Go("#/events?kind=instances")
	p.Until("the page is live", `document.querySelector(".live.good")`)
	before := s.admin.Instance("shop-1")
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Sees("shop-1 crashed")
	p.Sees("shop-1 is now Running")
	await.That(t, "another process runs", func() string {
		now := s.admin.Instance("shop-1")
		return await.Unless(now.State == "RUNNING" && now.PID != before.PID, "%+v", now)
	})
	p.Go("#/crashes")
	p.Until("the crash is listed", `[...document.querySelectorAll("td a")].some((a) => a.textContent === "shop-1")`)
	p.Go("#/instances/shop-1?tab=explain")
	p.Sees("How it came to this")
}

func TestAConsoleLosesNoLineWhileTheGatewayIsAway(t *testing.T) {
	s := newSite(t)
	second := cluster.AddGateway(t, s.Local, s.admin, "second")
	s.group("talk", 1, map[string]any{"command": "i=0; while sleep 0.02; do i=$((i+1)); echo line $i; done"})
	front := before(t, second) // the gateway comes back at another port
	p := s.Open(t, "http://"+front.Address())
	p.LogIn("admin", s.password())
	p.Go("#/instances/talk-1")
	p.Until("lines arrive", `document.querySelectorAll(".console-line").length > 5`)
	second.Stop()
	p.Until("the page says that it is offline", `document.querySelector(".console-bar .live.bad")`)
	second.Restart(s.admin)
	p.Until("the page was live again and more lines came", `(() => {
		const live = document.querySelector(".console-bar .live.good");
		const lines = [...document.querySelectorAll(".console-line:not(.note)")].map((l) => Number(l.textContent.split(" ")[1]));
		window.from ??= Math.max(...lines);
		return live && Math.max(...lines) > window.from + 200;
	})()`)
	// All lines are in the page's memory, but only those in view are drawn: walk through them, again
	// if older lines were put before them meanwhile.
	p.Until("no line is missing", `(() => {
		const view = document.querySelector(".console-view"), seen = (window.seen ??= new Set());
		for (const l of document.querySelectorAll(".console-line:not(.note)")) seen.add(Number(l.textContent.split(" ")[1]));
		window.at = window.at > 0 ? window.at - view.clientHeight / 2 : view.scrollHeight;
		view.scrollTop = window.at;
		const last = window.from + 200;
		window.missing = Array.from({ length: last }, (_, n) => n + 1).filter((n) => !seen.has(n));
		return window.missing.length === 0;
	})()`)
}

func TestANodeIsDrainedWithAPreviewAndTheDrainIsTakenBack(t *testing.T) {
	s := newSite(t)
	s.group("web", 2, nil)
	p := s.asAdmin()
	p.Go("#/nodes/node-1")
	p.Click("Drain")
	p.Sees("What will happen")
	p.Sees("web-1")
	p.Click("Drain")
	p.Sees("node-1 is being drained")
	p.Until("the node shows its drain", `document.querySelector(".page-head .badge").textContent === "Draining"`)
	p.Click("End the drain")
	p.Until("the node takes instances again", `document.querySelector(".page-head .badge").textContent === "Online"`)
	p.Go("#/topology")
	p.Click("Cordon")
	p.Sees("takes no new instances")
	p.Click("Undo")
	p.Until("the cordon is taken back", `document.querySelector(".nodebox .badge").textContent === "Online"`)
}

func TestAViewerIsOfferedNothingThatIsRefused(t *testing.T) {
	s := newSite(t)
	s.group("web", 1, nil)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "vera", "password": "correct horse battery", "role": "VIEWER"}).OK(201)
	p := s.as("vera", "correct horse battery")
	for _, page := range []string{"#/", "#/groups/web", "#/instances", "#/nodes"} {
		p.Go(page)
		p.Until("the page is there", `document.querySelector("main h1")`)
		for _, name := range []string{"New group", "Scale", "Deploy", "Delete", "Drain", "Cordon", "Stop"} {
			p.Until(page+" has no "+name, fmt.Sprintf(`![...document.querySelectorAll("main button")].some((b) => b.textContent === %q)`, name))
		}
	}
	p.Until("pages of administrators are not offered", `![...document.querySelectorAll("nav a")].some((a) => a.textContent === "Users")`)
	p.Go("#/users")
	p.Sees("You need the permission users.view")
}

func TestAUserWithoutPermissionsSeesWhichAreMissing(t *testing.T) {
	s := newSite(t)
	s.group("web", 1, nil)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "nora", "password": "correct horse battery", "role": "NONE"}).OK(201)
	p := s.as("nora", "correct horse battery")
	p.Eval(`{ const real = fetch; window.refused = []; window.fetch = async (...a) => { const r = await real(...a); if (!r.ok && !String(a[0]).includes("/events/ticket")) refused.push(a[0]); return r; }; }`)
	for hash, permission := range map[string]string{
		"#/": "groups.view", "#/groups": "groups.view", "#/groups/web": "groups.view", "#/instances/web-1": "instances.view",
		"#/nodes/node-1": "nodes.view", "#/schedules": "groups.view", "#/players": "players.view", "#/audit": "audit.view", "#/users": "users.view",
	} {
		p.Go(hash)
		p.Sees("You need the permission " + permission)
	}
	if got := p.Eval(`refused`); got != "[]" {
		t.Errorf("the page sent requests that were refused: %s", got)
	}
	s.admin.Do("POST", "/api/v1/roles", map[string]any{"name": "JOINER", "permissions": []string{"tokens.view"}}).OK(201)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "joe", "password": "correct horse battery", "role": "JOINER"}).OK(201)
	p = s.as("joe", "correct horse battery")
	p.Go("#/users?tab=tokens")
	p.Until("the only tab that he may see is open", `document.querySelector(".tabs .current")?.textContent === "Tokens" && document.querySelectorAll(".tabs a").length === 1`)
}

func TestAModeratorSeesOneGroup(t *testing.T) {
	s := newSite(t)
	s.group("bedwars", 1, map[string]any{"labels": map[string]string{"game": "bedwars"}})
	s.group("secret", 1, nil)
	s.admin.Do("POST", "/api/v1/roles", map[string]any{"name": "MODERATOR", "permissions": []string{"groups.view", "instances.view", "instances.console", "instances.command", "instances.stop", "events.stream"}}).OK(201)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "mo", "password": "correct horse battery", "role": "NONE"}).OK(201)
	s.admin.Do("PUT", "/api/v1/bindings/bedwars", map[string]any{"role": "MODERATOR", "selector": "game=bedwars", "subjects": []string{"mo"}}).OK(201)
	p := s.as("mo", "correct horse battery")
	p.Go("#/instances")
	p.Sees("bedwars-1")
	p.Lacks("secret-1")
	p.Click("bedwars-1")
	p.Fill("Type into bedwars-1", "hello")
	p.Key(kb.Enter)
	p.Until("the console repeats it", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent === "hello")`)
	p.Go("#/groups/secret")
	p.Sees("There is no such group")

	// In another group they may only look.
	s.group("lobby", 1, map[string]any{"labels": map[string]string{"game": "lobby"}})
	s.admin.Do("POST", "/api/v1/roles", map[string]any{"name": "WATCHER", "permissions": []string{"groups.view", "instances.view", "instances.console"}}).OK(201)
	s.admin.Do("PUT", "/api/v1/bindings/lobby", map[string]any{"role": "WATCHER", "selector": "game in (lobby, hub)", "subjects": []string{"mo"}}).OK(201)
	p.Reload()
	p.Go("#/instances/lobby-1")
	p.Sees("lobby-1")
	p.Until("nothing is offered that is refused", `document.querySelector(".console-view") && ![...document.querySelectorAll("main button")].some((b) => ["Restart", "Stop", "Kill", "Send"].includes(b.textContent))`)
	p.Go("#/instances/bedwars-1")
	p.Until("everything is offered that is allowed", `["Restart", "Stop", "Kill", "Send"].every((name) => [...document.querySelectorAll("main button")].some((b) => b.textContent === name))`)
}

func TestAGroupWithoutRoomSaysWhy(t *testing.T) {
	s := newSite(t)
	p := s.asAdmin()
	p.Go("#/groups?new=1")
	p.Fill("Name", "huge")
	p.Fill("Memory of each (MiB)", "9000000")
	p.Sees("has to wait: ")
	p.Click("Create")
	p.Sees("No room")
	p.Sees("9000000 are requested")
	p.Go("#/")
	p.Sees("1 more has no room on a node")
}

func TestTwoPeopleEditOneGroup(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	p := s.asAdmin()
	p.Go("#/groups/lobby?tab=settings")
	p.Fill("Memory (MiB)", "24")
	s.admin.Do("PATCH", "/api/v1/groups/lobby", map[string]any{"maxInstances": 7}).OK(200)
	p.Click("Review and save")
	p.Sees("Somebody else changed this in the meantime")
	p.Until("what the other changed", `[...document.querySelectorAll(".notice tr")].some((r) => r.textContent === "maxInstances107")`)
	p.Until("what was typed is still there", `document.querySelector("#f-memorymb").value === "24"`)
	p.Click("Save mine anyway")
	p.Click("Save")
	p.Sees("Saved")
	var g struct{ MemoryMb, MaxInstances int }
	s.admin.Do("GET", "/api/v1/groups/lobby", nil).OK(200, &g)
	if g.MemoryMb != 24 || g.MaxInstances != 7 {
		t.Errorf("after both edits: %+v", g)
	}
}

func TestADeploymentIsFollowedAndTheGroupScaled(t *testing.T) {
	s := newSite(t)
	s.group("web", 2, nil)
	p := s.asAdmin()
	p.Go("#/groups/web")
	p.Click("Scale")
	p.Fill("Number of instances", "3")
	p.Sees("web-3")
	p.Click("Scale")
	s.admin.AwaitRunning("web", 3)
	p.Click("Deploy")
	p.Sees("3 are replaced")
	p.Click("Deploy")
	p.Sees("The deployment of web began")
	p.Until("it is done", `document.querySelector("article .badge").textContent === "Completed"`)
	p.Sees("3 of 3 replaced")
}

func TestTheYAMLOfAGroupIsSavedAndTakenBack(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, map[string]any{"env": map[string]string{"MOTD": "one: two\n# three", "YES": "yes"}})
	p := s.asAdmin()
	p.Go("#/groups/lobby?tab=settings")
	p.Click("YAML")
	var text string
	p.Until("the YAML is shown", `document.querySelector("textarea[aria-label='Settings as YAML']")`)
	p.Into(&text, `document.querySelector("textarea").value`)
	p.Fill("Settings as YAML", strings.Replace(text, "memoryMb: 16", "memoryMb: 20", 1))
	p.Click("Review and save")
	p.Sees("memoryMb")
	p.Click("Save")
	p.Sees("Saved")
	var g struct {
		MemoryMb int
		Env      map[string]string
	}
	s.admin.Do("GET", "/api/v1/groups/lobby", nil).OK(200, &g)
	if g.MemoryMb != 20 || g.Env["MOTD"] != "one: two\n# three" || g.Env["YES"] != "yes" {
		t.Errorf("after the edit: %+v", g)
	}
	p.Click("Undo")
	await.That(t, "the edit is taken back", func() string {
		s.admin.Do("GET", "/api/v1/groups/lobby", nil).OK(200, &g)
		return await.Unless(g.MemoryMb == 16, "%+v", g)
	})
}

func TestWithTheKeyboardOnly(t *testing.T) {
	s := newSite(t)
	s.group("web", 3, nil)
	p := s.asAdmin()
	p.Until("the page is live", `document.querySelector(".live.good")`)
	p.Key("?")
	p.Sees("Keyboard shortcuts")
	p.Key(kb.Escape)
	p.Lacks("Keyboard shortcuts")
	p.Key("g")
	p.Key("i")
	p.Until("g i opens the instances", `location.hash === "#/instances" && document.querySelector(".list-row")`)
	p.Key("/")
	p.Until("/ goes to the filter", `document.activeElement.type === "search"`)
	p.Type("web-2")
	p.Until("the list is filtered", `document.querySelectorAll(".list-row").length === 1`)
	p.Hold("k")
	p.Until("Ctrl-K opens the search", `document.activeElement.getAttribute("role") === "combobox"`)
	p.Type("web-3")
	p.Until("it is found", `document.querySelectorAll("[role=option]").length === 1`)
	p.Key(kb.Enter)
	p.Until("Enter opens it", `document.querySelector("h1")?.textContent === "web-3"`)
	p.Until("its heading has the focus, and the title names it", `document.activeElement === document.querySelector("h1") && document.title === "web-3 · Instances · Orrery"`)
	p.Eval(`[...document.querySelectorAll("main button")].find((b) => b.textContent === "Stop").focus()`)
	p.Key(kb.Enter)
	p.Sees("What will happen")
	p.Key(kb.Escape)
	p.Until("a dialog that ends gives the focus back", `!document.querySelector("dialog") && document.activeElement.textContent === "Stop"`)
	p.Hold("k")
	p.Until("Ctrl-K opens the search again", `document.activeElement.getAttribute("role") === "combobox"`)
	p.Type("restart web-2")
	p.Until("the command is found", `[...document.querySelectorAll("[role=option]")].map((o) => o.firstChild.textContent).join() === "Restart web-2"`)
	p.Key(kb.Enter)
	p.Sees("What will happen")
}
