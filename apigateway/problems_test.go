package apigateway

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestProblemsAreListedWithTheirFix(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	for _, g := range []string{"fine", "lobby", "arena", "broken"} {
		s.group(g, nil)
	}
	s.group("late", map[string]any{"minInstances": 1, "dependsOn": []string{"arena"}})
	s.inside("fine", "node-1")
	s.note(s.start("lobby"))
	s.status(s.start("broken"), "node-1", fleet.Status{State: fleet.Failed, Reason: fleet.ReasonCommandMissing, Message: "no such file: server.sh"})
	now := time.Now().UTC()
	s.commit(
		store.Create(keys.CrashLoop("arena"), crashloop.Loop{Group: "arena", GroupRevision: 1, Level: 1, Crashes: 3, Since: now, PausedAt: now, PausedUntil: now.Add(time.Hour)}),
		store.Create(keys.TemplateSourceStatus("repo"), content.SourceStatus{Name: "repo", State: content.SourceFailed, Message: "no route to host", At: now}),
	)
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	s.inside("fine", "node-2")
	s.loseNode("node-2")
	got := map[string]string{}
	r := s.do("GET", "/api/v1/problems", nil).want(200)
	var severities []string
	for _, d := range r.data() {
		p, _ := d.(map[string]any)
		kind, _ := p["kind"].(string)
		name, _ := p["name"].(string)
		reason, _ := p["reason"].(string)
		severity, _ := p["severity"].(string)
		got[kind+"/"+name] = reason
		severities = append(severities, severity)
		if p["message"] == "" || p["fix"] == "" {
			t.Errorf("it does not say what is wrong and what to do: %v", p)
		}
	}
	for object, reason := range map[string]string{
		"group/lobby": "NoNodeFits", "group/arena": "CrashLoop", "group/broken": "CommandMissing", "group/late": "DependencyMissing",
		"node/node-2": "NodeLost", "template-source/repo": "FAILED", "service/enforcer": "ServiceMissing",
	} {
		if got[object] != reason {
			t.Errorf("%s has the problem %q, want %q", object, got[object], reason)
		}
	}
	for _, fine := range []string{"group/fine", "node/node-1"} {
		if got[fine] != "" {
			t.Errorf("%s has the problem %q", fine, got[fine])
		}
	}
	if order := strings.Join(severities, " "); strings.Contains(order, "warning critical") {
		t.Errorf("the most urgent is not first: %s", order)
	}
	seen := s.without("guest", "nodes.view", "cluster.view", "templates.view").do("GET", "/api/v1/problems", nil).want(200).raw
	for _, kind := range []string{`"node"`, `"service"`, `"template-source"`} {
		if strings.Contains(string(seen), `"kind":`+kind) {
			t.Errorf("a user without the permission sees problems of kind %s", kind)
		}
	}
	s.do("PATCH", "/api/v1/groups/late", `{"maintenance":true}`).want(200)
	if strings.Contains(string(s.do("GET", "/api/v1/problems", nil).want(200).raw), `"late"`) {
		t.Error("a group in maintenance has a problem, but it shall start nothing")
	}
}

func TestAGroupThatCrashesRepeatedlyIsAProblem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	now := time.Now().UTC()
	// failed starts an instance of a group that was not ready in time.
	failed := func(group string, at time.Time, before ...time.Time) fleet.InstanceID {
		id := s.start(group)
		s.status(id, "node-1", fleet.Status{State: fleet.Crashed, Reason: fleet.ReasonStartTimeout, FinishedAt: at, Crashes: before})
		return id
	}
	for _, g := range []string{"once", "slow", "old", "fixed", "reset", "replaced"} {
		s.group(g, nil)
	}
	failed("once", now)
	failed("slow", now, now.Add(-2*time.Minute), now.Add(-time.Minute))
	failed("old", now, now.Add(-time.Hour), now.Add(-11*time.Minute))
	failed("fixed", now, now.Add(-time.Minute))
	s.do("PATCH", "/api/v1/groups/fixed", `{"memoryMb":128}`).want(200)
	failed("reset", now, now.Add(-time.Minute))
	s.commit(store.Create(keys.CrashLoop("reset"), crashloop.Loop{Group: "reset", GroupRevision: 1, Level: 1, Crashes: 3, Since: now, PausedAt: now, PausedUntil: now.Add(time.Hour)}))
	s.do("POST", "/api/v1/groups/reset/crash-loop/reset", nil).want(200)
	first, second := failed("replaced", now), failed("replaced", now)
	i, _ := s.view.Snapshot().Instances.Get(first)
	intent := i.Intent
	intent.ReplacedBy = second
	s.commit(store.Replace(keys.Intent(first), intent, intent.ModRev))
	list := func() map[string]map[string]any {
		found := map[string]map[string]any{}
		for _, d := range s.do("GET", "/api/v1/problems", nil).want(200).data() {
			p, _ := d.(map[string]any)
			if p["reason"] == "Crashing" {
				name, _ := p["name"].(string)
				found[name] = p
			}
		}
		return found
	}
	got := list()
	if len(got) != 2 || got["slow"]["count"] != 3.0 || got["slow"]["message"] != "3 crashes in the last 10 minutes; the latest: slow-1: it was not ready in time" || got["replaced"]["count"] != 2.0 {
		t.Errorf("got %v", got)
	}
	s.commit(store.Create(keys.CrashLoop("slow"), crashloop.Loop{Group: "slow", GroupRevision: 1, Level: 1, Crashes: 3, Since: now, PausedAt: now, PausedUntil: now.Add(time.Hour)}))
	if _, paused := list()["slow"]; paused {
		t.Error("a paused group has two problems")
	}
}
