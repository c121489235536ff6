package apigateway

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestABufferOfSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/groups", `{"name":"lobby","scaleBufferSlots":30,"scaleBufferPercent":20}`).want(201).is("scaleBufferSlots", 30).is("scaleBufferPercent", 20)
	s.do("PATCH", "/api/v1/groups/lobby", `{"scaleBufferPercent":25}`).want(200).is("scaleBufferSlots", 30).is("scaleBufferPercent", 25)
	before := s.revision()
	for body, field := range map[string]string{
		`{"scaleBufferSlots":-1}`:               "scaleBufferSlots",
		`{"scaleBufferSlots":1000001}`:          "scaleBufferSlots",
		`{"scaleBufferPercent":100}`:            "scaleBufferPercent",
		`{"scaleBufferPercent":-1}`:             "scaleBufferPercent",
		`{"scalingMode":"STATIC"}`:              "scaleBufferSlots",
		`{"static":true}`:                       "scaleBufferSlots",
		`{"maxInstances":0}`:                    "scaleBufferSlots",
		`{"maxPlayers":0}`:                      "scaleBufferSlots",
		`{"maxPlayers":0,"scaleBufferSlots":0}`: "scaleBufferPercent",
		`{"scaleDownAfterSeconds":-1}`:          "scaleDownAfterSeconds",
		`{"scaleCooldownSeconds":-1}`:           "scaleCooldownSeconds",
		`{"minInstances":3,"maxInstances":2}`:   "minInstances",
		`{"scaleUpThreshold":1.01}`:             "scaleUpThreshold",
		`{"minInstances":11}`:                   "minInstances",
	} {
		s.do("PATCH", "/api/v1/groups/lobby", body).want(422).naming(field)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"scaleBufferSlots":"many"}`).want(400).naming("scaleBufferSlots")
	if moved := s.moved(before); len(moved) > 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

func TestAGroupSaysWhatItsLoadDecided(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"minInstances": 1, "maxInstances": 3, "maxPlayers": 10})
	const path = "/api/v1/groups/lobby"
	s.do("GET", path, nil).want(200).is("scaling.automatic", true).is("scaling.message", "").is("scaling.target", 1).is("scaling.missing", 1).
		is("scaling.heldBy", nil).is("scaling.last", nil).is("scaling.cooldownUntil", nil).is("scaling.slots", 0)
	at := time.Now().UTC()
	s.commit(store.Create(keys.Scaling("lobby"), scaling.Decision{
		Group: "lobby", Target: 3, From: 1, To: 3, At: at, Reason: fleet.ReasonFullness, Message: "because",
	}))
	s.do("GET", path, nil).want(200).is("scaling.target", 3).is("scaling.missing", 3).is("scaling.last.from", 1).is("scaling.last.to", 3).
		is("scaling.last.reason", "Fullness").is("scaling.last.message", "because").is("scaling.cooldownUntil", at.Add(time.Minute).Format(time.RFC3339Nano))
	s.do("PATCH", path, `{"scalingMode":"STATIC"}`).want(200).is("scaling.automatic", false).is("scaling.message", "scalingMode is STATIC").is("scaling.target", 1)
	s.do("PATCH", path, `{"scalingMode":"DYNAMIC"}`).want(200).is("scaling.target", 3)
	s.do("POST", path+"/scale", `{"targetInstances":1}`).want(200)
	s.do("GET", path, nil).want(200).is("scaling.target", 1)
}

func TestAGroupSaysWhatHoldsItBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("base", nil)
	s.group("lobby", map[string]any{"minInstances": 1, "maxInstances": 1, "maxPlayers": 10, "scaleCooldownSeconds": 0})
	const path = "/api/v1/groups/lobby"
	held := func(rule, reason string) {
		t.Helper()
		var want any = reason
		if reason == "" {
			want = nil
		}
		r := s.do("GET", path, nil).want(200)
		got, _ := r.field("scaling.heldBy").(map[string]any)
		if got["reason"] != want || (got["message"] == "") != (got == nil && reason != "") {
			t.Errorf("%s: held by %v, want %q", rule, got, reason)
		}
	}
	held("about to start", "")
	s.commit(store.Create(keys.Maintenance(), cluster.Maintenance{Maintenance: fleet.Maintenance{On: true}}))
	held("maintenance of all groups", "Maintenance")
	s.do("PUT", "/api/v1/maintenance", `{"enabled":false}`).want(200)
	s.do("PATCH", path, `{"dependsOn":["base"]}`).want(200)
	held("a dependency", "DependencyMissing")
	s.do("PATCH", path, `{"dependsOn":[]}`).want(200)
	s.commit(store.Create(keys.CrashLoop("lobby"), crashloop.Loop{
		Group: "lobby", GroupRevision: 9, Level: 1, Crashes: 3, Since: time.Now(), PausedUntil: time.Now().Add(time.Hour),
	}))
	held("a pause after crashes", "CrashLoop")
	s.do("POST", path+"/crash-loop/reset", nil).want(200)
	id := s.start("lobby")
	held("an instance waits for the scheduler", "Unscheduled")
	s.hold(id, "node-1", fleet.Resources{MemoryMiB: 16})
	s.status(id, "node-1", fleet.Status{State: fleet.Online, Reason: fleet.ReasonReady})
	held("all is well", "")
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Instances: map[fleet.InstanceID]reports.InstanceReport{id: {Players: 9, PlayersKnown: true}}}))
	held("the load needs more than the maximum", "AtMaximum")
	s.do("GET", path, nil).want(200).is("scaling.slots", 10).is("scaling.missing", 0)
	s.do("PATCH", path+"?dryRun=true", `{"maxInstances":5,"scaleUpThreshold":0.3}`).want(200).naming("3 more instances would start because of the load")
	s.do("PATCH", path+"?dryRun=true", `{"scaleUpThreshold":0.5}`).want(200).naming("but maxInstances is 1")
	s.do("PATCH", path+"?dryRun=true", `{"scalingMode":"STATIC"}`).want(200).naming("the load would no longer change the number of instances: scalingMode is STATIC")
	s.do("PATCH", path, `{"maxInstances":5,"scaleCooldownSeconds":3600}`).want(200)
	s.commit(store.Create(keys.Scaling("lobby"), scaling.Decision{Group: "lobby", From: 2, To: 1, At: time.Now(), Reason: fleet.ReasonIdle, Message: "because"}))
	held("the cooldown", "Cooldown")
}
