package dashboard_test

import (
	"fmt"
	"testing"
)

// ofBackup is a function of the page: it returns a button of the first backup, whether it can be used or not.
const ofBackup = `((name) => [...document.querySelectorAll("article button")].find((b) => b.textContent === name))`

// world declares a static group with a server that keeps its first words in a file, and starts one.
func (s *site) world() {
	s.t.Helper()
	s.group("world", 0, map[string]any{"static": true, "command": `[ -f level ] || echo first >level; echo ready; exec cat`})
	s.admin.Do("POST", "/api/v1/groups/world/start", nil).OK(200)
	s.admin.AwaitState("world-1", "RUNNING")
}

// rewrite replaces the words in the file of the server.
func (s *site) rewrite(words string) {
	s.t.Helper()
	s.admin.Do("PUT", "/api/v1/services/world-1/files/content?path=level", map[string]any{"content": words}).OK(200)
}

// words returns what is in the file of the server.
func (s *site) words() string {
	s.t.Helper()
	var file struct{ Content string }
	s.admin.Do("GET", "/api/v1/services/world-1/files/content?path=level", nil).OK(200, &file)
	return file.Content
}

func TestABackupIsMadeAndRestored(t *testing.T) {
	s := newSite(t)
	s.world()
	p := s.asAdmin()
	p.Go("#/instances/world-1?tab=backups")
	p.Sees("There are no backups")
	p.Click("Back up now")
	p.Fill("Lines before", "save-off")
	p.Fill("Text to wait for", "save-off") // the server repeats what it reads
	p.Fill("Lines after", "save-on")
	p.Click("Back up now")
	p.Sees("The backup is complete")
	p.Until("the list has the complete backup", `document.querySelectorAll("article").length === 1 && document.querySelector("article .badge.good").textContent === "Complete"`)
	p.Until("it has a path, files and who made it", `[".tar.zst", "Byadmin", "Files2", "Size6 B"].every((text) => document.querySelector("article").textContent.includes(text))`)
	p.Until("a server that runs is not restored, and the page says why", ofBackup+`("Restore").disabled && `+ofBackup+`("Restore").title.includes("Stop the instance") && document.body.innerText.includes("Stop the instance")`)
	p.Go("#/instances/world-1")
	p.Until("the console got the lines in order", `[...document.querySelectorAll(".console-line:not(.note)")].map((l) => l.textContent).join().endsWith("ready,save-off,save-on")`)

	s.rewrite("second\n")
	p.Go("#/instances/world-1?tab=backups")
	p.Click("Stop")
	p.Click("Stop")
	s.admin.AwaitState("world-1", "STOPPED")
	p.Click("Restore")
	p.Sees("The whole directory of the instance is replaced")
	p.Sees("for a day")
	p.Sees("What will happen")
	p.Click("Restore")
	p.Sees("The backup is restored")
	if got := s.words(); got != "first\n" {
		t.Errorf("after the restore the file has %q", got)
	}
	p.Until("the list says when it was restored", `/Last restore(now|\d+ s ago)/.test(document.querySelector("article").textContent)`)
	p.Go("#/instances/world-1?tab=files&file=level")
	p.Until("the tab of files shows the old content", `document.querySelector("textarea").value === "first\n"`)

	p.Go("#/instances/world-1?tab=backups")
	p.Until("the backup can be deleted", ofBackup+`("Delete")`)
	p.Eval(ofBackup + `("Delete").click()`) // the instance has a button with this name too
	p.Sees("The archive is removed from the node")
	p.Click("Delete")
	p.Sees("There are no backups")
}

// TestABackupIsFollowedWithOneRequest backs up a server that does not say that its data is written, so that
// the backup takes long.
func TestABackupIsFollowedWithOneRequest(t *testing.T) {
	s := newSite(t)
	s.world()
	p := s.asAdmin()
	p.Go("#/instances/world-1?tab=backups")
	p.Sees("There are no backups")
	p.Eval(`{ const real = fetch; window.waiting = 0; window.most = 0; window.begun = 0; window.fetch = async (...a) => {
		if (!String(a[0]).includes("waitSeconds")) return real(...a);
		begun++; most = Math.max(most, ++waiting);
		try { return await real(...a); } finally { waiting--; }
	}; }`)
	p.Click("Back up now")
	p.Fill("Lines before", "save-off")
	p.Fill("Text to wait for", "Saved the game")
	p.Click("Back up now")
	p.Until("the page shows that it runs, and one request waits", `document.querySelector("article .badge.busy").textContent === "Running" && waiting === 1`)
	p.Until("another one is not offered", `[...document.querySelectorAll("main button")].find((b) => b.textContent === "Back up now").disabled`)
	p.Until("another request follows the first", `begun >= 2 && waiting === 1`)
	p.Go("#/instances/world-1?tab=built")
	p.Until("no request waits on another tab", `document.querySelector("main pre") && waiting === 0`)
	p.Go("#/instances/world-1?tab=backups")
	p.Until("a request waits again", `waiting === 1`)
	s.admin.Do("POST", "/api/v1/services/world-1/command", map[string]any{"command": "Saved the game"}).OK(200)
	p.Sees("The backup is complete")
	p.Until("no request waits for what has ended", `waiting === 0 && most === 1`)
}

func TestAScheduleMakesBackups(t *testing.T) {
	s := newSite(t)
	s.group("arena", 1, nil)
	s.world()
	p := s.asAdmin()
	p.Go("#/instances/arena-1")
	p.Until("a dynamic instance has no tab of backups", `document.querySelector(".tabs") && ![...document.querySelectorAll(".tabs a")].some((a) => a.textContent === "Backups")`)
	p.Go("#/schedules")
	p.Click("New schedule")
	p.Fill("Name", "nightly")
	p.Fill("Group", "arena")
	p.Fill("Action", "backup")
	p.Sees("This group is not static")
	p.Fill("Group", "world")
	p.Lacks("This group is not static")
	p.Fill("Backups to keep", "2")
	p.Fill("Lines before", "save-off")
	p.Fill("Text to wait for", "save-off")
	p.Fill("Lines after", "save-on")
	p.Click("Check")
	p.Click("Save")
	p.Sees("It is saved")
	var made struct {
		Action string
		Backup struct {
			Keep          int
			Before, After []string
			Until         string
		}
	}
	s.admin.Do("GET", "/api/v1/schedules/nightly", nil).OK(200, &made)
	if got := fmt.Sprintf("%+v", made); got != "{Action:backup Backup:{Keep:2 Before:[save-off] After:[save-on] Until:save-off}}" {
		t.Errorf("the form made %s", got)
	}
	p.Until("the list and the details show it", `document.querySelector(".cell-action").textContent === "Back up world" && ["Backups to keep2", "Lines beforesave-off", "Lines aftersave-on"].every((text) => document.querySelector(".aside").textContent.includes(text))`)
	p.Click("Edit")
	p.Until("the form has what was saved", `document.querySelector("#f-backup-before").value === "save-off" && document.querySelector("#f-backup-keep").value === "2"`)
	p.Click("Cancel")
	second := p.Another()
	second.Go("#/instances/world-1?tab=backups")
	second.Sees("There are no backups")
	p.Click("Run now")
	p.Sees("What will happen")
	p.Click("Run now")
	p.Until("the run is complete", `[...document.querySelectorAll(".aside .badge")].some((b) => b.textContent === "Completed")`)
	second.Until("the other page shows the backup without being asked", `document.querySelector("article .badge.good") && document.querySelector("article a").textContent === "schedule nightly"`)
	second.Go("#/instances/world-1")
	second.Until("the server goes on", line("save-on"))
	s.admin.Do("POST", "/api/v1/roles", map[string]any{"name": "READER", "permissions": []string{"instances.view", "backups.view"}}).OK(201)
	s.admin.Do("POST", "/api/v1/users", map[string]any{"username": "rita", "password": "correct horse battery", "role": "READER"}).OK(201)
	p = s.as("rita", "correct horse battery")
	p.Go("#/instances/world-1?tab=backups")
	p.Until("a reader sees the backup, and is offered nothing that is refused", `document.querySelector("article .badge.good") && ![...document.querySelectorAll("main button, main .button")].some((b) => ["Back up now", "Restore", "Delete", "Schedules"].includes(b.textContent))`)
}
