package dashboard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// allPages names the pages of the dashboard and what shows that each is complete.
var allPages = []struct{ name, hash, ready string }{
	{"overview", "#/", `document.querySelectorAll(".card").length >= 3 && !document.querySelector("main .loading")`},
	{"topology", "#/topology", `document.querySelector(".nodebox .chip")`},
	{"groups", "#/groups", `document.querySelector(".list-row")`},
	{"group", "#/groups/web", `document.querySelector(".list-row")`},
	{"group-settings", "#/groups/web?tab=settings", `document.querySelector("fieldset")`},
	{"group-scaling", "#/groups/web?tab=scaling", `document.querySelectorAll(".card").length >= 3`},
	{"group-deployments", "#/groups/rolled?tab=deployments", `document.querySelector("article")`},
	{"group-history", "#/groups/web?tab=history", `document.querySelector(".plain li")`},
	{"instances", "#/instances", `document.querySelector(".list-row")`},
	{"instance-console", "#/instances/web-1", `document.querySelector(".console-line")`},
	{"instance-why", "#/instances/web-1?tab=explain", `document.querySelector(".timeline li")`},
	{"instance-metrics", "#/instances/web-1?tab=metrics", `document.querySelector("main .empty, main canvas")`},
	{"instance-files", "#/instances/web-1?tab=files", `document.querySelector("main .files, main .empty")`},
	{"instance-backups", "#/instances/world-1?tab=backups", `document.querySelector("article .badge.good")`},
	{"instance-built", "#/instances/web-1?tab=built", `document.querySelectorAll(".card").length >= 4`},
	{"instance-history", "#/instances/web-1?tab=history", `document.querySelectorAll(".card").length >= 3`},
	{"nodes", "#/nodes", `document.querySelector(".list-row")`},
	{"node", "#/nodes/node-1", `document.querySelector(".list-row")`},
	{"node-machine", "#/nodes/node-1?tab=machine", `document.querySelectorAll(".card").length >= 3`},
	{"node-cache", "#/nodes/node-1?tab=cache", `document.querySelectorAll(".card").length >= 2`},
	{"consoles", "#/console?show=web-1,web-2", `document.querySelectorAll(".console-line").length >= 2`},
	{"deployments", "#/deployments", `document.querySelector("article")`},
	{"templates", "#/templates", `document.querySelector(".list-row")`},
	{"template-files", "#/templates/demo%2Fweb", `document.querySelector("main h1")`},
	{"template-file", "#/templates/demo%2Fweb?path=server.properties", `document.querySelector("textarea")`},
	{"template-versions", "#/templates/demo%2Fweb?tab=versions", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"template-settings", "#/templates/demo%2Fweb?tab=settings", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"schedules", "#/schedules", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"players", "#/players", `document.querySelector("main .empty")`},
	{"networks", "#/networks", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"crashes", "#/crashes", `document.querySelector("td")`},
	{"events", "#/events", `document.querySelector("main .list")`},
	{"audit", "#/audit", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"users", "#/users", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"roles", "#/users?tab=roles", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"bindings", "#/users?tab=bindings", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"service-accounts", "#/users?tab=service-accounts", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"tokens", "#/users?tab=tokens", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-profile", "#/settings", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-appearance", "#/settings?tab=appearance", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-gateways", "#/settings?tab=gateways", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-cluster", "#/settings?tab=cluster", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-logs", "#/settings?tab=logs", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-catalog", "#/settings?tab=catalog", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-secrets", "#/settings?tab=secrets", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-quotas", "#/settings?tab=quotas", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-notices", "#/settings?tab=notices", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"settings-shares", "#/settings?tab=shares", `document.querySelector("main h1") && !document.querySelector("main .loading")`},
	{"reset", "#/reset", `document.querySelector("form.login h1")`},
	{"missing", "#/no/such/page", `document.querySelector("main .empty")`},
}

// axe returns the source of axe-core, which make check-dashboard installs.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(cluster.Root(t), "dashboard", "node_modules", "axe-core", "axe.min.js"))
	if err != nil && os.Getenv("ORRERY_CI") == "" {
		t.Skip("axe-core is not installed: run make check-dashboard")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// TestEveryPageIsAccessibleAndFits opens each page in light and dark, wide and on a phone. It
// writes pictures of them to e2e/screenshots.
func TestEveryPageIsAccessibleAndFits(t *testing.T) {
	source := axe(t)
	s := newSite(t)
	cluster.WriteTemplate(t, s.Local, "demo/web", map[string]string{"server.properties": "server-port=%PORT%\nmotd=hello\n", "plugins/a/config.yml": "a: 1\n"})
	await.That(t, "the template is published", func() string {
		r := s.admin.Do("GET", "/api/v1/templates/demo/web", nil)
		if r.Status != 200 {
			r = s.admin.Do("GET", "/api/v1/templates/demo%2Fweb", nil)
		}
		return await.Unless(r.Status == 200, "%s", r.Body)
	})
	s.group("web", 2, map[string]any{"templates": []string{"demo/web"}, "labels": map[string]string{"game": "lobby"}})
	s.group("broken", 0, map[string]any{"command": "echo 'Exception in thread main'; exit 3"})
	s.admin.Do("POST", "/api/v1/groups/broken/start", nil).OK(200)
	s.world()
	s.admin.Do("POST", "/api/v1/services/world-1/backups", nil).OK(202)
	s.group("rolled", 1, nil)
	s.admin.Do("POST", "/api/v1/groups/rolled/deploy", nil).OK(202)
	await.That(t, "the crash is recorded", func() string {
		var crashes struct{ Total int }
		s.admin.Do("GET", "/api/v1/crashes", nil).OK(200, &crashes)
		return await.Unless(crashes.Total > 0, "no crash")
	})
	dir := filepath.Join(cluster.Root(t), "e2e", "screenshots")
	p := s.Open(t, s.API())
	check := func(name string) {
		t.Helper()
		for _, v := range p.Violations(source) {
			t.Errorf("%s: %s", name, v)
		}
		var size struct{ Content, Window int }
		p.Into(&size, `({ content: document.documentElement.scrollWidth, window: innerWidth })`)
		if size.Content > size.Window {
			t.Errorf("%s: the page is %d pixels wide in a window of %d", name, size.Content, size.Window)
		}
		p.Picture(dir, name)
	}
	p.Until("the login is there", `document.querySelector(".login")`)
	check("login-light-wide")
	p.LogIn("admin", s.password())
	for _, width := range []struct {
		name          string
		width, height int64
	}{{"wide", 1280, 900}, {"narrow", 360, 740}} {
		p.Size(width.width, width.height)
		for _, theme := range []string{"light", "dark"} {
			p.Prefer(theme)
			for _, page := range allPages {
				p.Go(page.hash)
				p.Until("the page "+page.name+" is complete", page.ready)
				check(strings.Join([]string{page.name, theme, width.name}, "-"))
			}
		}
	}
}

// TestHostileTextsStayTexts shows names, messages and console lines that try to be more.
func TestHostileTextsStayTexts(t *testing.T) {
	s := newSite(t)
	const evil = `<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>`
	s.group("evil", 1, map[string]any{
		"command":            fmt.Sprintf(`printf '%%s\n' '%s' "$(printf '\033]0;title\007\033[31mred\033[0m \342\200\256back')" "$(head -c 5000 /dev/zero | tr '\0' W)"; exec cat`, evil),
		"labels":             map[string]string{"note": "x"},
		"maintenanceMessage": evil, "motds": []string{evil},
		"env": map[string]string{"EVIL": evil},
	})
	p := s.asAdmin()
	for _, hash := range []string{"#/", "#/groups", "#/groups/evil", "#/groups/evil?tab=settings", "#/groups/evil?tab=history", "#/instances/evil-1?tab=built", "#/instances/evil-1", "#/events", "#/audit", "#/instances?q=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "#/groups/%3Cscript%3E"} {
		p.Go(hash)
		p.Until(hash+" is there", `document.querySelector("main h1, main .empty") && !document.querySelector("main .loading")`)
		if got := p.Eval(`[window.hacked === undefined, document.querySelectorAll("main img, main script").length, /^((evil(-1)?|<script>) · )?[A-Z][a-z]+ · Orrery$/.test(document.title), document.documentElement.scrollWidth <= innerWidth]`); got != "[true,0,true,true]" {
			t.Errorf("%s: %s", hash, got)
		}
	}
	p.Go("#/instances/evil-1")
	p.Until("the console shows it as text", `[...document.querySelectorAll(".console-line")].some((l) => l.textContent.includes("<img src=x onerror="))`)
	p.Until("a colour is shown, a title is not", `[...document.querySelectorAll(".console-line .fg-red")].some((l) => l.textContent === "red") && !document.querySelector(".console-view").textContent.includes("title")`)
	p.Until("a character that turns the text around is shown as what it is", `document.querySelector(".console-view").textContent.includes("\ufffdback")`)
}
