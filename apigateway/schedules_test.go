package apigateway

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// nightly is the schedule of the guide.
const nightly = `{"group":"lobby","action":"restart","cron":"0 4 * * *","timezone":"Europe/Berlin",
	"warnings":[{"beforeSeconds":600,"command":"say 10"},{"beforeSeconds":300,"command":"say 5"},{"beforeSeconds":60,"command":"say 1"}]}`

// inHalfAYear is a cron expression for one evening in about half a year, so that its window is not open now.
func inHalfAYear() string { return fmt.Sprintf("0 18 1 %d *", (time.Now().UTC().Month()+5)%12+1) }

func TestAScheduleIsMadeReadReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.do("GET", "/api/v1/schedules", nil).want(200).is("total", 0)
	rev := s.revision()
	s.do("PUT", "/api/v1/schedules/nightly?dryRun=true", nightly).want(200).is("action", "create").naming(`"field":"cron"`)
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	made := s.do("PUT", "/api/v1/schedules/nightly", nightly).want(201).
		is("group", "lobby").is("instance", nil).is("timezone", "Europe/Berlin").is("overlap", "skip").is("enabled", true).is("count", nil).
		is("running", nil).is("lastRun", nil).is("updatedBy", "admin")
	next, err := time.Parse(time.RFC3339, fmt.Sprint(made.field("nextRun")))
	berlin, _ := time.LoadLocation("Europe/Berlin")
	if err != nil || next.In(berlin).Hour() != 4 {
		t.Errorf("next run %v, %v", made.field("nextRun"), err)
	}
	read := s.do("GET", "/api/v1/schedules/nightly", nil).want(200)
	s.do("PUT", "/api/v1/schedules/nightly", read.raw).want(200)
	if now := s.do("GET", "/api/v1/schedules/nightly", nil); now.header.Get("ETag") != read.header.Get("ETag") {
		t.Error("writing back what was read changed it")
	}
	s.do("PUT", "/api/v1/schedules/nightly", `{"group":"lobby","action":"start","count":2,"cron":"0 4 * * *","enabled":false}`).want(200).
		is("nextRun", nil).is("count", 2).is("warnings", []any{}).is("timezone", "UTC")
	s.do("GET", "/api/v1/schedules", nil).want(200).is("total", 1).is("data.0.name", "nightly")
	s.do("GET", "/api/v1/schedules/nightly/history", nil).want(200).is("total", 0)
	s.do("GET", "/api/v1/history/schedule/nightly", nil).want(200).is("total", 2)
	s.do("DELETE", "/api/v1/schedules/nightly?dryRun=true", nil).want(200).is("action", "delete")
	s.do("DELETE", "/api/v1/schedules/nightly", nil).want(204)
	s.do("DELETE", "/api/v1/schedules/nightly", nil).want(404)
	s.do("GET", "/api/v1/schedules/nightly", nil).want(404)
	s.do("POST", "/api/v1/schedules/nightly/run", nil).want(404)
	s.do("GET", "/api/v1/schedules/nightly/history", nil).want(404)
}

func TestABadScheduleIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	rev := s.revision()
	put := func(path, body string, status int, field string) {
		t.Helper()
		s.do("PUT", path, body).want(status).naming(field)
	}
	for field, body := range map[string]string{
		"cron":                      `{"group":"lobby","action":"stop","cron":"every day"}`,
		"30 2":                      `{"group":"lobby","action":"stop","cron":"0 0 30 2 *"}`,
		"timezone":                  `{"group":"lobby","action":"stop","cron":"0 4 * * *","timezone":"Mars/Olympus"}`,
		"group":                     `{"action":"stop","cron":"0 4 * * *"}`,
		"group names":               `{"group":"nowhere","action":"stop","cron":"0 4 * * *"}`,
		"instance names":            `{"instance":"lobby-9","action":"stop","cron":"0 4 * * *"}`,
		"instance must":             `{"instance":"x y","action":"stop","cron":"0 4 * * *"}`,
		"together with group":       `{"group":"lobby","instance":"lobby-1","action":"stop","cron":"0 4 * * *"}`,
		"action":                    `{"group":"lobby","action":"explode","cron":"0 4 * * *"}`,
		"command is missing":        `{"group":"lobby","action":"command","cron":"0 4 * * *"}`,
		"command has":               `{"group":"lobby","action":"stop","command":"x","cron":"0 4 * * *"}`,
		"count":                     `{"group":"lobby","action":"stop","count":2,"cron":"0 4 * * *"}`,
		"count must":                `{"group":"lobby","action":"start","count":51,"cron":"0 4 * * *"}`,
		"warnings[0].beforeSeconds": `{"group":"lobby","action":"stop","cron":"0 4 * * *","warnings":[{"beforeSeconds":0,"command":"x"}]}`,
		"warnings[1].beforeSeconds": `{"group":"lobby","action":"stop","cron":"0 4 * * *","warnings":[{"beforeSeconds":5,"command":"x"},{"beforeSeconds":5,"command":"y"}]}`,
		"warnings[0].command":       `{"group":"lobby","action":"stop","cron":"0 4 * * *","warnings":[{"beforeSeconds":5,"command":"a\nb"}]}`,
		"jitterSeconds":             `{"group":"lobby","action":"stop","cron":"0 4 * * *","jitterSeconds":-1}`,
		"jitterSeconds must be":     `{"group":"lobby","action":"stop","cron":"*/5 * * * *","jitterSeconds":301}`,
		"warnings must begin":       `{"group":"lobby","action":"stop","cron":"0 4 * * *","warnings":[{"beforeSeconds":86400,"command":"x"}]}`,
		"overlap":                   `{"group":"lobby","action":"stop","cron":"0 4 * * *","overlap":"both"}`,
	} {
		put("/api/v1/schedules/one", body, 422, field)
	}
	put("/api/v1/schedules/.one", `{"group":"lobby","action":"stop","cron":"0 4 * * *"}`, 422, "name")
	put("/api/v1/schedules/one", `{"group":"lobby","action":"stop","cron":4}`, 400, "cron")
	put("/api/v1/schedules/one", `{"when":"now"}`, 400, "when")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

func TestAScheduleNeedsThePermissionForItsAction(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.do("POST", "/api/v1/roles", `{"name":"EDITOR","permissions":["groups.view","groups.update","instances.stop"]}`).want(201)
	editor := s.user("ed", "EDITOR")
	editor.do("PUT", "/api/v1/schedules/a", nightly).want(403).naming("instances.command")
	editor.do("PUT", "/api/v1/schedules/a", `{"group":"lobby","action":"start","cron":"0 4 * * *"}`).want(403).naming("groups.start")
	editor.do("PUT", "/api/v1/schedules/a", `{"group":"lobby","action":"restart","cron":"0 4 * * *"}`).want(201)
	s.do("PUT", "/api/v1/schedules/b", `{"group":"lobby","action":"command","command":"x","cron":"0 4 * * *"}`).want(201)
	editor.do("POST", "/api/v1/schedules/b/run", nil).want(403).naming("instances.command")
}

// running starts an instance of a group and makes it ONLINE.
func (s *site) running(group fleet.GroupName) fleet.InstanceID {
	s.t.Helper()
	id := s.start(string(group))
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	return id
}

func TestARunOfAScheduleStopsItsInstances(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	id := s.running("lobby")
	s.do("PUT", "/api/v1/schedules/night", `{"group":"lobby","action":"stop","cron":"0 0 29 2 *","enabled":false}`).want(201)
	rev := s.revision()
	s.do("POST", "/api/v1/schedules/night/run?dryRun=true", nil).want(200).is("run.steps.0.action", "stop").
		is("run.steps.0.instances.0.name", "lobby-1").is("run.steps.0.instances.0.state", "PENDING")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("POST", "/api/v1/schedules/night/run", nil).want(202).is("number", 1).is("requestedBy", "admin").is("dueAt", nil)
	s.untilRun("night", "COMPLETED")
	if i, _ := s.view.Snapshot().Instances.Get(id); i.Intent.Desired != fleet.DesiredStopped || i.Intent.Stop.By != "schedule night" {
		t.Errorf("the instance is %+v", i.Intent)
	}
	s.do("GET", "/api/v1/schedules/night/history", nil).want(200).is("total", 1).is("data.0.steps.0.instances.0.state", "DONE")
	s.do("GET", "/api/v1/audit?action=schedule.run", nil).want(200).is("total", 1).is("data.0.username", "admin")
	s.do("GET", "/api/v1/audit?action=instance.stop", nil).want(200).is("data.0.username", "schedule night")
}

func TestARunRestartsSeveralInstancesByADeployment(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.running("lobby")
	s.running("lobby")
	s.do("PUT", "/api/v1/schedules/night", `{"group":"lobby","action":"restart","cron":"0 0 29 2 *"}`).want(201)
	s.do("POST", "/api/v1/schedules/night/run?dryRun=true", nil).want(200).is("run.steps.0.instances.0.name", "lobby").is("run.steps.0.instances.0.uid", nil)
	s.do("POST", "/api/v1/schedules/night/run", nil).want(202)
	await.That(t, "a deployment", func() string {
		r := s.do("GET", "/api/v1/groups/lobby/deployments", nil).want(200)
		return await.Unless(r.field("total") == 1.0, "%s", r.raw)
	})
	s.do("GET", "/api/v1/groups/lobby/deployments/1", nil).want(200).is("trigger", "rolling_restart").is("strategy", "ROLLING")
	s.do("POST", "/api/v1/schedules/night/run", nil).want(409).naming("in progress")
	s.commit(store.Create(keys.DeploymentProgress("lobby", 1), deployment.Progress{Group: "lobby", Number: 1, State: deployment.Completed}))
	s.untilRun("night", "COMPLETED")
	s.do("GET", "/api/v1/audit?action=group.restart", nil).want(200).is("total", 1).is("data.0.username", "schedule night")
}

func TestSchedulesDrainANodeAndPutItBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.running("lobby")
	rev := s.revision()
	for names, body := range map[string]string{
		"node":              `{"node":"node-9","action":"drain","cron":"0 3 * * 0"}`,
		"node must":         `{"node":"node-1","group":"lobby","action":"drain","cron":"0 3 * * 0"}`,
		"action must":       `{"node":"node-1","action":"stop","cron":"0 3 * * 0"}`,
		"action concerns":   `{"group":"lobby","action":"undrain","cron":"0 3 * * 0"}`,
		"drain has":         `{"node":"node-1","action":"undrain","drain":{"timeout":5},"cron":"0 3 * * 0"}`,
		"drain.timeout":     `{"node":"node-1","action":"drain","drain":{"timeout":0},"cron":"0 3 * * 0"}`,
		"drain.kickMessage": `{"node":"node-1","action":"drain","drain":{"kickMessage":"` + strings.Repeat("x", 201) + `"},"cron":"0 3 * * 0"}`,
	} {
		s.do("PUT", "/api/v1/schedules/window", body).want(422).naming(names)
	}
	s.do("PUT", "/api/v1/schedules/window", `{"node":"node-1","action":"drain","drain":{"deadline":5},"cron":"0 3 * * 0"}`).want(400).naming("deadline")
	s.do("POST", "/api/v1/roles", `{"name":"EDITOR","permissions":["groups.view","groups.update"]}`).want(201)
	ed := s.user("ed", "EDITOR")
	ed.do("PUT", "/api/v1/schedules/window", `{"node":"node-1","action":"drain","cron":"0 3 * * 0"}`).want(403).naming("nodes.drain")
	for _, key := range s.moved(rev) {
		if strings.Contains(key, "schedules/") {
			t.Errorf("a refused request wrote %s", key)
		}
	}
	s.do("PUT", "/api/v1/schedules/window", `{"node":"node-1","action":"drain","drain":{"timeout":600,"kickMessage":"see you"},"cron":"0 3 * * 0"}`).want(201).
		is("node", "node-1").is("group", nil).is("drain.timeout", 600).is("drain.shutdown", false)
	s.do("PUT", "/api/v1/schedules/back", `{"node":"node-1","action":"undrain","cron":"0 5 * * 0"}`).want(201).is("drain", nil)
	s.do("POST", "/api/v1/schedules/window/run?dryRun=true", nil).want(200).is("run.steps.0.instances.0.name", "node-1").is("run.steps.0.action", "drain")
	s.do("POST", "/api/v1/schedules/window/run", nil).want(202)
	s.untilRun("window", "COMPLETED")
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "DRAINING").is("drain.requestedBy", "schedule window").is("drain.drainTimeoutSeconds", 600).is("drain.shutdown", false)
	s.do("POST", "/api/v1/schedules/back/run", nil).want(202)
	s.untilRun("back", "COMPLETED")
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "ONLINE")
	s.do("GET", "/api/v1/audit?action=node.undrain", nil).want(200).is("total", 1).is("data.0.username", "schedule back")
}

// untilRun waits until the last run of a schedule has a result.
func (s *site) untilRun(name, result string) {
	s.t.Helper()
	await.That(s.t, "the run of "+name, func() string {
		r := s.do("GET", "/api/v1/schedules/"+name, nil).want(200)
		return await.Unless(r.field("lastRun.result") == result && r.field("running") == nil, "%s", r.raw)
	})
}

func TestARunThatIsInProgressIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.running("lobby")
	s.do("PUT", "/api/v1/schedules/nightly", nightly).want(201)
	s.do("POST", "/api/v1/schedules/nightly/run", `{"warn":true}`).want(202).is("steps.3.action", "restart").is("steps.0.command", "say 10")
	s.do("POST", "/api/v1/schedules/nightly/run", nil).want(409).naming("in progress")
	s.do("DELETE", "/api/v1/schedules/nightly", nil).want(204)
}

// TestOneGatewayRunsADueSchedule lets the time come on two gateways.
func TestOneGatewayRunsADueSchedule(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	a := newSite(t, func(c *Config) { c.Now = now })
	b := newSiteOn(t, a.etcd, func(c *Config) { c.Now = now }).as(a.token)
	a.group("lobby", nil)
	a.do("PUT", "/api/v1/schedules/more", `{"group":"lobby","action":"start","cron":"0 * * * *"}`).want(201)
	next, err := time.Parse(time.RFC3339, fmt.Sprint(a.do("GET", "/api/v1/schedules/more", nil).field("nextRun")))
	if err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(time.Until(next) + time.Second))
	// A change of the sessions makes both look at the time again.
	a.commit(store.Create(keys.Session(serviceName, "other"), cluster.Session{Service: serviceName, Replica: "other"}))
	a.untilRun("more", "COMPLETED")
	b.untilRun("more", "COMPLETED")
	n := 0
	for range a.view.Snapshot().GroupInstances("lobby") {
		n++
	}
	if n != 1 {
		t.Errorf("%d instances were started", n)
	}
	a.do("GET", "/api/v1/schedules/more/history", nil).want(200).is("total", 1).is("data.0.dueAt", next.Format(time.RFC3339))
}

func TestARunOfAGatewayThatWasKilledIsRecordedAsInterrupted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	id := s.running("lobby")
	s.do("PUT", "/api/v1/schedules/save", `{"group":"lobby","action":"command","command":"save-all","cron":"0 0 29 2 *"}`).want(201)
	run := schedule.Run{Number: 1, At: time.Now(), Begun: time.Now(), Group: "lobby", Holder: schedule.Holder{Replica: "dead", Epoch: 3}, Steps: []schedule.Step{{
		Action: schedule.Command, Command: "save-all", At: time.Now(), Begun: time.Now(),
		Targets: []schedule.Target{{ID: id, Name: "lobby-1", Generation: 1, State: schedule.TargetBegun}},
	}}}
	s.commit(store.Create(keys.ScheduleState("save"), schedule.State{Name: "save", Runs: 1, Current: &run}))
	s.untilRun("save", "INTERRUPTED")
	s.do("GET", "/api/v1/audit?action=instance.command", nil).want(200).is("total", 0)
}

func TestAnOverlayIsMadeReadReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"labels": map[string]string{"kind": "game"}})
	const path = "/api/v1/overlays/evening"
	body := `{"groups":["lobby"],"cron":"` + inHalfAYear() + `","durationSeconds":14400,"timezone":"Europe/Berlin","overlay":{"minInstances":2,"maxInstances":20}}`
	rev := s.revision()
	s.do("PUT", path+"?dryRun=true", body).want(200).is("action", "create").is("affectedGroups", []any{"lobby"})
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("PUT", path, body).want(201).is("overlay.minInstances", 2).is("overlay.maintenance", nil).is("affectedGroups", []any{"lobby"}).is("from", nil)
	read := s.do("GET", path, nil).want(200)
	s.do("PUT", path, read.raw).want(200)
	s.do("GET", "/api/v1/events", nil).want(200).is("0.name", "evening").is("0.group", "lobby").is("0.durationSeconds", 14400).is("0.overlay.maxInstances", 20)
	s.do("PUT", path, `{"selector":{"kind":"game"},"from":"2099-01-01T00:00:00Z","until":"2099-01-02T00:00:00Z","overlay":{"maintenance":true}}`).want(200).
		is("affectedGroups", []any{"lobby"}).is("nextStart", "2099-01-01T00:00:00Z").is("active", false)
	s.do("GET", "/api/v1/events/active", nil).want(200).is("active", []any{})
	s.do("GET", "/api/v1/history/overlay/evening", nil).want(200).is("total", 2)
	s.do("DELETE", path, nil).want(204)
	s.do("GET", path, nil).want(404)
	s.do("DELETE", path, nil).want(404)
}

func TestABadOverlayIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 3})
	rev := s.revision()
	for field, body := range map[string]string{
		"until must be after from":             `{"groups":["lobby"],"from":"2099-01-02T00:00:00Z","until":"2099-01-01T00:00:00Z","overlay":{"maintenance":true}}`,
		"until must be in the years":           `{"groups":["lobby"],"from":"2026-01-01T00:00:00Z","until":"9999-12-31T23:59:59-01:00","overlay":{"maintenance":true}}`,
		"groups names a group twice":           `{"groups":["lobby","lobby"],"from":"2099-01-01T00:00:00Z","until":"2099-01-02T00:00:00Z","overlay":{"maintenance":true}}`,
		"until is missing":                     `{"groups":["lobby"],"from":"2099-01-02T00:00:00Z","overlay":{"maintenance":true}}`,
		"timezone":                             `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60,"timezone":"x","overlay":{"maintenance":true}}`,
		"cron":                                 `{"groups":["lobby"],"cron":"x","durationSeconds":60,"overlay":{"maintenance":true}}`,
		"cron is missing":                      `{"groups":["lobby"],"overlay":{"maintenance":true}}`,
		"from and until":                       `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60,"from":"2099-01-02T00:00:00Z","overlay":{"maintenance":true}}`,
		"durationSeconds":                      `{"groups":["lobby"],"cron":"0 18 * * *","overlay":{"maintenance":true}}`,
		"groups":                               `{"cron":"0 18 * * *","durationSeconds":60,"overlay":{"maintenance":true}}`,
		"groups[1]":                            `{"groups":["lobby","nowhere"],"cron":"0 18 * * *","durationSeconds":60,"overlay":{"maintenance":true}}`,
		"overlay changes nothing":              `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60}`,
		"overlay.minInstances must not exceed": `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60,"overlay":{"minInstances":5,"maxInstances":4}}`,
		"overlay.minInstances is 5":            `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60,"overlay":{"minInstances":5}}`,
		"overlay.scalingMode must be":          `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60,"overlay":{"scalingMode":"SOMETIMES"}}`,
		"overlay.maintenanceMessage":           `{"groups":["lobby"],"cron":"0 18 * * *","durationSeconds":60,"overlay":{"minInstances":1,"maintenanceMessage":"x"}}`,
	} {
		s.do("PUT", "/api/v1/overlays/one", body).want(422).naming(field)
	}
	s.do("PUT", "/api/v1/overlays/one", `{"groups":["lobby"],"overlay":{"mode":"MANUAL"}}`).want(400).naming("mode")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

func TestAnActiveOverlayChangesItsGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"maxInstances": 3})
	who := s.inside("lobby", "node-1")
	from, until := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	body := fmt.Sprintf(`{"groups":["lobby"],"from":%q,"until":%q,"overlay":{"maxInstances":1,"scalingMode":"MANUAL","maintenance":true,"maintenanceMessage":"back soon"}}`, from, until)
	s.do("PUT", "/api/v1/overlays/now", body).want(201)
	s.untilActive("now", true)
	if g, _ := s.view.Snapshot().Groups.Get("lobby"); s.view.Snapshot().Overlaid(g).Spec.Scaling.Mode != fleet.ScalingManual {
		t.Error("the overlay does not change the scaling mode")
	}
	s.do("GET", "/api/v1/events/active", nil).want(200).is("active.0.overlay.scalingMode", "MANUAL")
	s.do("GET", "/api/v1/events/active", nil).want(200).is("active.0.eventName", "now").is("active.0.group", "lobby").is("active.0.activeUntil", until)
	s.do("POST", "/api/v1/groups/lobby/start", `{"count":1}`).want(409).naming("at most 1")
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("maxInstances", 3).is("maintenance", false)
	if g := who.list("/api/plugin/groups")[0]; g["isMaintenance"] != true || g["maintenanceMessage"] != "back soon" || g["maxInstances"] != 1.0 {
		t.Errorf("servers see %v", g)
	}
	s.do("DELETE", "/api/v1/overlays/now", nil).want(204)
	await.That(t, "the overlay ends", func() string {
		return await.Unless(len(s.view.Snapshot().ActiveOverlays().Overlays) == 0, "%+v", s.view.Snapshot().ActiveOverlays())
	})
	s.do("POST", "/api/v1/groups/lobby/start", `{"count":1}`).want(200)
}

func (s *site) untilActive(name string, active bool) {
	s.t.Helper()
	await.That(s.t, "the overlay "+name, func() string {
		r := s.do("GET", "/api/v1/overlays/"+name, nil).want(200)
		return await.Unless(r.field("active") == active, "%s", r.raw)
	})
}

func TestAPatchChangesFieldsOfASchedule(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	const path = "/api/v1/schedules/nightly"
	s.do("PATCH", path, `{}`).want(404)
	made := s.do("PUT", path, nightly).want(201)
	rev := s.revision()
	s.do("PATCH", path, `{}`).want(200)
	s.do("PATCH", path, made.raw).want(200)
	s.do("PATCH", path+"?dryRun=true", `{"jitterSeconds":5}`).want(200).is("action", "update").is("diff.0.field", "jitterSeconds").is("diff.0.to", 5)
	for body, says := range map[string]string{
		`{"cron":null}`:                  "cron",
		`{"cron":"every day"}`:           "cron",
		`{"action":null}`:                "action",
		`{"action":"command"}`:           "command is missing",
		`{"action":"drain"}`:             "node",
		`{"count":2}`:                    "count",
		`{"command":"x"}`:                "command",
		`{"instance":"lobby-1"}`:         "together with group",
		`{"group":null}`:                 "group",
		`{"group":"nowhere"}`:            "group names",
		`{"timezone":"Mars/Olympus"}`:    "timezone",
		`{"overlap":"both"}`:             "overlap",
		`{"jitterSeconds":-1}`:           "jitterSeconds",
		`{"warnings":[{"command":"x"}]}`: "warnings[0].beforeSeconds",
		`{"name":"other"}`:               "renamed",
	} {
		s.do("PATCH", path, body).want(422).naming(says)
	}
	s.do("PATCH", path, `{"when":"now"}`).want(400).naming("when")
	s.do("PATCH", path, `{"cron":4}`).want(400).naming("cron")
	s.do("PATCH", path, `[]`).want(400)
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("requests that change nothing wrote %v", moved)
	}
	tag := made.header.Get("ETag")
	s.do("PATCH", path, `{"timezone":null,"warnings":null,"description":"x"}`, "If-Match", tag).want(200).
		is("timezone", "UTC").is("warnings", []any{}).is("description", "x").is("cron", "0 4 * * *").is("group", "lobby")
	s.do("PATCH", path, `{"description":"y"}`, "If-Match", tag).want(412)
	s.do("PATCH", path, `{"action":"start","count":3}`).want(200).is("count", 3)
	s.do("PATCH", path, `{"action":"stop"}`).want(200).is("count", nil).is("description", "x")
	s.node("node-1", fleet.Resources{MemoryMiB: 1024})
	s.do("PATCH", path, `{"group":null,"node":"node-1","action":"drain","drain":{"timeout":90}}`).want(200).is("group", nil).is("drain.timeout", 90).is("drain.shutdown", false)
	s.do("PATCH", path, `{"drain":{"shutdown":true}}`).want(200).is("drain.timeout", 90).is("drain.shutdown", true)
	s.do("PATCH", path, `{"drain":{"timeout":null}}`).want(200).is("drain.timeout", 60)
	s.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200).naming("schedule.update")

	s.do("POST", "/api/v1/roles", `{"name":"EDITOR","permissions":["groups.view","groups.update"]}`).want(201)
	editor := s.user("ed", "EDITOR")
	editor.do("PATCH", path, `{"description":"z"}`).want(403).naming("nodes.drain")
	editor.do("PATCH", path, `{"action":"stop","node":null,"group":"lobby"}`).want(403).naming("instances.stop")
}

func TestAPatchChangesFieldsOfAnOverlay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"labels": map[string]string{"kind": "hub", "tier": "1"}})
	const path = "/api/v1/overlays/evening"
	s.do("PATCH", path, `{}`).want(404)
	made := s.do("PUT", path, `{"groups":["lobby"],"selector":{"kind":"hub","tier":"1"},"cron":"`+inHalfAYear()+`","durationSeconds":3600,"overlay":{"minInstances":1,"maintenance":true}}`).want(201)
	rev := s.revision()
	s.do("PATCH", path, `{}`).want(200)
	s.do("PATCH", path, made.raw).want(200)
	s.do("PATCH", path+"?dryRun=true", `{"enabled":false}`).want(200).is("action", "update").is("diff.0.field", "enabled")
	for body, says := range map[string]string{
		`{"cron":"every day"}`:            "cron",
		`{"cron":null}`:                   "cron",
		`{"durationSeconds":null}`:        "durationSeconds",
		`{"groups":["nowhere"]}`:          "groups[0]",
		`{"groups":null,"selector":null}`: "groups",
		`{"overlay":null}`:                "overlay",
		`{"overlay":{"minInstances":-1}}`: "minInstances",
		`{"timezone":"Mars/Olympus"}`:     "timezone",
		`{"name":"other"}`:                "renamed",
	} {
		s.do("PATCH", path, body).want(422).naming(says)
	}
	s.do("PATCH", path, `{"overlay":{"mode":"MANUAL"}}`).want(400).naming("mode")
	s.do("PATCH", path, `{"durationSeconds":"long"}`).want(400).naming("durationSeconds")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("requests that change nothing wrote %v", moved)
	}
	tag := made.header.Get("ETag")
	s.do("PATCH", path, `{"selector":{"tier":null,"zone":"eu"},"overlay":{"maintenance":null,"maxInstances":4}}`, "If-Match", tag).want(200).
		is("selector", map[string]string{"kind": "hub", "zone": "eu"}).is("overlay.minInstances", 1).is("overlay.maxInstances", 4).is("overlay.maintenance", nil)
	s.do("PATCH", path, `{"enabled":false}`, "If-Match", tag).want(412)
	s.do("PATCH", path, `{"cron":null,"durationSeconds":null,"from":"2099-01-01T00:00:00Z","until":"2099-01-02T00:00:00Z"}`).want(200).
		is("cron", "").is("from", "2099-01-01T00:00:00Z").is("groups", []string{"lobby"})
	s.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200).naming("overlay.update")
}
