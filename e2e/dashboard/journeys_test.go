package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/debugger"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/dashboard/browser"
	"github.com/orreryhq/orrery/libs/await"
)

// steve is a player.
const steve = "069a79f4-44e9-4726-a5be-fca90e38aaf5"

func TestAPlayerIsFoundAndMoved(t *testing.T) {
	s := newSite(t)
	dir := cluster.OpenDir(t)
	plugins := map[string]*cluster.Plugin{}
	for name, platform := range map[string]string{"hub": "PAPER", "game": "PAPER", "edge": "VELOCITY"} {
		s.group(name, 1, map[string]any{"platform": platform, "command": cluster.WritesToken(dir, name) + "; exec cat"})
		plugins[name] = cluster.PluginOf(t, s.Local, dir, name)
	}
	p := s.asAdmin()
	p.Go("#/players")
	p.Sees("No players")
	plugins["hub"].Call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	plugins["edge"].Call("POST", "/api/proxy/player-join", `{"uuid":"`+steve+`","name":"Steve","instanceId":"hub-1","group":"hub"}`, nil)
	p.Sees("Steve") // by its event
	p.Fill("Filter", "stev")
	p.Click("Message")
	p.Fill("Text", "the hub restarts at four")
	p.Click("Send")
	p.Sees("The message is on the way to Steve")
	await.That(t, "the message is at the proxy", func() string {
		var messages []struct{ Content string }
		plugins["edge"].Call("GET", "/api/proxy/messages/pending", "", &messages)
		return await.Unless(len(messages) == 1 && messages[0].Content == "the hub restarts at four", "%+v", messages)
	})
	p.Click("Move")
	p.Fill("To", "game-1")
	p.Click("Move")
	p.Sees("Steve is on the way to game-1")
	await.That(t, "the transfer is at the proxy", func() string {
		var pending []struct{ PlayerUUID, TargetInstanceID string }
		plugins["edge"].Call("GET", "/api/proxy/pending-transfers", "", &pending)
		return await.Unless(len(pending) == 1 && pending[0].PlayerUUID == steve && pending[0].TargetInstanceID == "game-1", "%+v", pending)
	})
	plugins["hub"].Call("POST", "/api/plugin/player-leave", `{"uuid":"`+steve+`"}`, nil)
	plugins["game"].Call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	p.Until("the list shows the new server", `document.querySelector(".list-row .cell-server").textContent === "game-1"`)
}

func TestATemplateIsEditedAndRolledOut(t *testing.T) {
	s := newSite(t)
	s.admin.Do("POST", "/api/v1/templates", map[string]any{"name": "my/web"}).OK(201)
	p := s.asAdmin()
	p.Go("#/templates/my%2Fweb")
	p.Click("New file")
	p.Fill("Path", "motd.txt")
	p.Click("Create")
	p.Fill("Text of motd.txt", "first")
	p.Click("Save to draft")
	p.Sees("motd.txt is in the draft")
	p.Click("Review and publish")
	p.Fill("Message", "a first version")
	p.Click("Publish")
	p.Sees("is published")
	dir := cluster.OpenDir(t)
	s.group("web", 1, map[string]any{"platform": "PAPER", "templates": []string{"my/web"}, "command": cluster.WritesToken(dir, "$CLOUD_INSTANCE_ID") + "; cat motd.txt; echo; exec cat"})
	s.group("edge", 1, map[string]any{"platform": "VELOCITY", "command": cluster.WritesToken(dir, "edge") + "; exec cat"})
	old, edge := cluster.PluginOf(t, s.Local, dir, "web-1"), cluster.PluginOf(t, s.Local, dir, "edge")
	old.Call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	edge.Call("POST", "/api/proxy/player-join", `{"uuid":"`+steve+`","name":"Steve","instanceId":"web-1","group":"web"}`, nil)
	p.Go("#/templates/my%2Fweb?path=motd.txt")
	p.Fill("Text of motd.txt", "second")
	p.Hold("s") // saves to the draft
	p.Sees("motd.txt is in the draft")
	p.Click("Review and publish")
	p.Click("Publish")
	p.Sees("is published")
	p.Go("#/groups/web")
	p.Click("Deploy")
	p.Sees("1 is replaced")
	p.Fill("Players may stay for (seconds)", "1")
	p.Click("Deploy")
	// The server with a player stays until the player is on the new one.
	p.Sees("0 of 1 replaced")
	next := cluster.PluginOf(t, s.Local, dir, "web-2")
	await.That(t, "the player is asked to move", func() string {
		var pending []struct{ PlayerUUID, TargetInstanceID string }
		edge.Call("GET", "/api/proxy/pending-transfers", "", &pending)
		return await.Unless(len(pending) == 1 && pending[0].PlayerUUID == steve && pending[0].TargetInstanceID == "web-2", "%+v", pending)
	})
	p.Go("#/groups/web?tab=instances")
	p.Sees("Draining")
	next.Call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	edge.Call("POST", "/api/proxy/transfer-ack/"+steve, "", nil)
	old.Call("POST", "/api/plugin/player-leave", `{"uuid":"`+steve+`"}`, nil)
	p.Go("#/groups/web?tab=deployments")
	p.Until("the deployment is done", `document.querySelector("article .badge").textContent === "Completed"`)
	s.admin.AwaitRunning("web", 1)
	p.Go("#/instances/web-2")
	p.Until("the new instance has the new text", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent.startsWith("second"))`)
}

func TestAnExpiredLoginLosesNothingThatWasTyped(t *testing.T) {
	s := newSite(t)
	s.group("lobby", 1, nil)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "ops", "password": "correct horse battery", "role": "OPERATOR"}).OK(201)
	p := s.as("ops", "correct horse battery")
	p.Go("#/groups/lobby?tab=settings")
	p.Fill("Memory (MiB)", "24")
	s.admin.Do("DELETE", "/api/v1/users/ops/sessions", nil).OK(204)
	p.Click("Review and save")
	p.Sees("Your login has ended")
	p.Fill("Password", "correct horse battery")
	p.Click("Log in")
	p.Until("the page is back with what was typed", `!document.querySelector(".cover") && document.querySelector("#f-memorymb").value === "24"`)
	p.Click("Review and save")
	p.Click("Save")
	p.Sees("Saved")
}

func TestTwoTabsShareTheStreamAndTheLogin(t *testing.T) {
	s := newSite(t)
	first := s.asAdmin()
	first.Until("the first tab is live", `document.querySelector(".live.good")`)
	second := first.Another()
	second.Go("#/groups")
	second.Until("the second tab is live without a login", `document.querySelector(".live.good")`)
	s.group("one", 1, nil)
	first.Until("the first tab counts the group", `[...document.querySelectorAll("nav a")].some((a) => a.textContent === "Groups1")`)
	second.Sees("one")
	// Both find that their token is old: one of them refreshes it.
	const old = `(() => { const k = "orrery.session", s = JSON.parse(localStorage.getItem(k)); s.refreshAt = 0; localStorage.setItem(k, JSON.stringify(s)); })()`
	first.Eval(old)
	first.Reload()
	second.Reload()
	for _, p := range []interface{ Until(what, expression string) }{first, second} {
		p.Until("the tab is live after the refresh", `document.querySelector(".live.good") && JSON.parse(localStorage.getItem("orrery.session")).refreshAt > Date.now()`)
	}
	first.Close()
	s.group("two", 1, nil)
	second.Sees("two") // the other tab reads the stream now
	second.Go("#/groups/two")
	second.Until("the page of the group", `document.querySelector("h1")?.textContent === "two"`)
	second.Eval(`history.back()`)
	second.Until("back leads to the list", `document.querySelector("h1")?.textContent === "Groups"`)
	second.Eval(`history.forward()`)
	second.Until("forward leads to the group", `document.querySelector("h1")?.textContent === "two"`)
}

// TestATabThatStandsStillDoesNotKeepTheStream stops the tab that reads the events for both: first a tab
// whose script is busy, then one that the browser froze in the background.
func TestATabThatStandsStillDoesNotKeepTheStream(t *testing.T) {
	s := newSite(t)
	first := s.asAdmin()
	first.Until("the first tab is live", `document.querySelector(".live.good")`)
	second := first.Another()
	for _, p := range []*browser.Tab{first, second} {
		p.Go("#/groups")
		p.Until("the tab is live", `document.querySelector(".live.good")`)
		p.Eval(`window.read = 0; window.EventSource = class extends EventSource { constructor(url) { super(url); read++; } }`)
	}
	reads := func(p *browser.Tab, want string) {
		t.Helper()
		if got := p.Eval(`read`); got != want {
			t.Errorf("the tab opened %s streams after its first, want %s", got, want)
		}
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lifecycle := func(p *browser.Tab, to page.SetWebLifecycleStateState) {
		t.Helper()
		must(chromedp.Call(p.Context(), page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: to}))
	}
	must(chromedp.Call(first.Context(), debugger.Enable, debugger.EnableParams{}))
	must(chromedp.Call(first.Context(), debugger.Pause, cdp.Empty{}))
	s.group("one", 1, nil)
	second.Sees("one") // after some questions without an answer
	reads(second, "1")
	must(chromedp.Call(first.Context(), debugger.Resume, debugger.ResumeParams{}))
	s.group("two", 1, nil)
	first.Sees("two")
	second.Sees("two")
	reads(first, "0") // the second tab still reads for both
	lifecycle(second, page.SetWebLifecycleStateStateFrozen)
	s.group("three", 1, nil)
	first.Sees("three")
	reads(first, "1")
	lifecycle(second, page.SetWebLifecycleStateStateActive)
	s.group("four", 1, nil)
	second.Sees("four")
	reads(second, "1")
	for _, p := range []*browser.Tab{first, second} {
		p.Go("#/events?kind=groups")
		p.Until("the tab has each event once", `[...document.querySelectorAll(".list-row")].filter((r) => r.textContent.includes("GROUP_CREATED")).map((r) => /one|two|three|four/.exec(r.textContent)?.[0]).join() === "four,three,two,one"`)
	}
	first.Close()
	s.group("five", 1, nil)
	second.Sees("five") // it reads the events again
}

func TestBackLeadsToWhereTheReaderWas(t *testing.T) {
	s := newSite(t)
	for n := range 80 {
		s.group(fmt.Sprintf("group-%02d", n), 0, nil)
	}
	p := s.asAdmin()
	p.Go("#/groups")
	p.Until("the list is complete", `document.documentElement.scrollHeight > 80 * 30`)
	at := func(what, y string) {
		t.Helper()
		p.Until(what, "scrollY === "+y)
	}
	p.Eval(`scrollTo(0, 1300)`)
	at("the list is scrolled", "1300")
	p.Until("the rows in view are drawn", `document.elementFromPoint(640, 450).closest(".list-row")`)
	p.Eval(`document.elementFromPoint(640, 450).closest(".list-row").querySelector("a").click()`)
	p.Until("the page of a group", `/^group-\d\d$/.test(document.querySelector("h1")?.textContent)`)
	at("it begins at its top", "0")
	p.Eval(`document.querySelector(".tabs a[href*=settings]").click()`)
	p.Until("the form is there", `document.documentElement.scrollHeight > innerHeight + 200 && document.querySelector("fieldset")`)
	p.Eval(`scrollTo(0, 150)`)
	at("the form is scrolled", "150")
	p.Eval(`history.go(-2)`)
	at("the list is where it was", "1300")
	p.Until("its rows are drawn", `document.elementFromPoint(640, 450).closest(".list-row")`)
	p.Eval(`history.go(2)`)
	p.Until("the form is where it was", `scrollY === 150 && document.querySelector("fieldset")`)
	p.Reload()
	p.Until("the form is there after it was loaded again", `scrollY === 150 && document.querySelector("fieldset")`)
	p.Eval(`history.go(-2)`)
	at("the list is still where it was", "1300")
}

func TestOnAPhone(t *testing.T) {
	s := newSite(t)
	s.group("web", 2, nil)
	p := s.asAdmin()
	p.Size(360, 740)
	p.Click("Navigation")
	p.Click("Instances2")
	p.Click("web-2")
	p.Fill("Type into web-2", "from a phone")
	p.Click("Send")
	p.Until("the console repeats it", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent === "from a phone")`)
	p.Click("Stop")
	p.Sees("What will happen")
	p.Click("Cancel")
	p.Until("nothing is wider than the screen", `document.documentElement.scrollWidth <= innerWidth`)
}

func TestALogOfAHundredMiBIsRead(t *testing.T) {
	s := newSite(t)
	s.group("big", 1, map[string]any{
		"command": `echo the first line; yes "$(head -c 990 /dev/zero | tr '\0' x)" | head -n 105000 | nl -ba -w7 -nrz; echo the last line; exec cat`,
		"limits":  map[string]any{"logMb": 200},
	})
	p := s.asAdmin()
	p.Go("#/instances/big-1")
	p.Until("the end is shown", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent === "the last line")`)
	p.Click("Beginning")
	p.Until("the beginning is shown", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent === "the first line")`)
	p.Fill("Search the log", "0104999")
	p.Key(kb.Enter)
	p.Sees("1 line matches")
	p.Until("the line is shown", `document.querySelector(".console-line").textContent.includes("0104999")`)
	p.Click("Back to the log")
	p.Click("Latest ↓")
	p.Until("the end is shown again", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent === "the last line")`)
}

func TestALargeFileIsEdited(t *testing.T) {
	s := newSite(t)
	s.admin.Do("POST", "/api/v1/templates", map[string]any{"name": "my/big"}).OK(201)
	var b strings.Builder
	for n := 0; b.Len() < 5<<20; n++ {
		fmt.Fprintf(&b, `{"number":%d,"text":"%s"},`, n, strings.Repeat("y", 60))
	}
	s.admin.Do("PUT", "/api/v1/templates/my%2Fbig/files/content?path=data.json", map[string]any{"content": ""}).OK(200)
	p := s.asAdmin()
	p.Go("#/templates/my%2Fbig?path=data.json")
	p.Until("the editor is there", `document.querySelector("textarea")`)
	p.Eval(fmt.Sprintf(`(async () => {
		const form = new FormData();
		form.append("file", new File(['[' + %s.repeat(60000) + '0]'], "data.json"));
		const token = JSON.parse(localStorage.getItem("orrery.session")).token;
		const answer = await fetch("/api/v1/templates/my%%2Fbig/files/upload", { method: "POST", body: form, headers: { Authorization: "Bearer " + token } });
		if (!answer.ok) throw new Error(await answer.text());
		return 0;
	})()`, "`{\"number\":1,\"text\":\""+strings.Repeat("y", 64)+"\"},`"))
	p.Reload()
	p.Sees("It is edited in parts")
	p.Until("a part is shown", `document.querySelector("textarea")?.value.length > 1000`)
	p.Eval(`document.querySelector("textarea").focus()`)
	p.Type("X")
	p.Click("Save to draft")
	p.Sees("Your draft")
}

func TestAWrongClockIsSaidAndAgesAreRight(t *testing.T) {
	s := newSite(t)
	s.group("web", 1, nil)
	p := s.Open(t, s.API())
	p.Before(`{ const real = Date.now; Date.now = () => real() - 300000; }`)
	p.Reload()
	p.LogIn("admin", s.password())
	p.Sees("The clock of this machine and the clock of the gateway are 5 min")
	p.Until("the age of a change is that of the gateway's clock", `/^(now|\d+ s ago|[12] min.*)$/.test(document.querySelector("main .plain time").textContent)`)
}
