package apigateway

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// asleep makes an instance of a group sleep on node-1.
func (s *site) asleep(group fleet.GroupName) fleet.InstanceID {
	s.t.Helper()
	id := s.running(group)
	s.do("POST", "/api/v1/instances/"+string(id)+"/sleep", nil).want(200).is("changed", true)
	s.status(id, "node-1", fleet.Status{State: fleet.Sleeping, Reason: fleet.ReasonAsleep, Message: "because", StartedAt: time.Now(), FinishedAt: time.Now()})
	return id
}

func TestAnInstanceSleepsAndWakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"memoryMb": 512})
	id := s.running("lobby")
	at := "/api/v1/services/" + string(id)
	rev := s.revision()
	s.do("POST", at+"/wake", nil).want(200).is("changed", false)
	s.do("POST", at+"/sleep?dryRun=true", nil).want(200).is("changed", true)
	if moved := s.moved(rev); len(moved) > 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("POST", at+"/sleep", nil).want(200).is("changed", true).is("status", "falling asleep")
	s.do("POST", at+"/sleep", nil).want(200).is("changed", false)
	s.becomes("instance.sleep", 1)
	i, _ := s.view.Snapshot().Instances.Get(id)
	if nap := i.Intent.Sleep; nap == nil || nap.By != "admin" || i.TakesPlayers() {
		t.Fatalf("intent %+v", i.Intent)
	}
	s.status(id, "node-1", fleet.Status{State: fleet.Sleeping, Reason: fleet.ReasonAsleep, Message: i.Intent.Sleep.Message})
	s.do("GET", at, nil).want(200).is("state", "STOPPED").is("reason", "SLEEPING").is("port", 30000).is("playerCount", 0)
	s.do("GET", at+"/explain", nil).want(200).is("state", "STOPPED").is("reason", "SLEEPING").naming("a player who joins")
	s.do("GET", "/api/v1/services?state=SLEEPING", nil).want(200).is("total", 1)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("reserved.memoryMb", 0).is("instanceCount", 1)
	s.do("GET", "/api/instances/"+string(id), nil).want(200).is("state", "STOPPED")
	s.do("DELETE", at, nil).want(409)

	s.do("POST", at+"/wake?dryRun=true", nil).want(200).is("changed", true)
	s.do("POST", at+"/wake", nil).want(200).is("changed", true).is("status", "waking")
	s.do("POST", at+"/wake", nil).want(200).is("changed", false)
	s.becomes("instance.wake", 1)
	if i, _ = s.view.Snapshot().Instances.Get(id); i.Intent.Sleep != nil || i.Intent.Reason != fleet.ReasonWoken || i.Intent.By != "admin" {
		t.Errorf("intent %+v", i.Intent)
	}
	s.user("eve", "VIEWER").do("POST", at+"/wake", nil).want(403)
	s.user("eva", "VIEWER").do("POST", at+"/sleep", nil).want(403)
	s.do("POST", "/api/v1/instances/nope/wake", nil).want(404)
	s.do("POST", "/api/v1/instances/nope/sleep", nil).want(404)
}

func TestAStartWakesASleepingInstanceAndAStopEndsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	first, second := s.asleep("lobby"), s.asleep("lobby")
	s.do("POST", "/api/v1/services/"+string(first)+"/start", nil).want(200).is("changed", true)
	s.becomes("instance.wake", 1)
	s.do("POST", "/api/v1/services/"+string(second)+"/stop", nil).want(200).is("changed", true)
	i, _ := s.view.Snapshot().Instances.Get(second)
	if i.Intent.Desired != fleet.DesiredStopped || i.Intent.Sleep != nil {
		t.Errorf("intent %+v", i.Intent)
	}
	s.do("POST", "/api/v1/services/"+string(second)+"/wake", nil).want(409).naming("start")
}

func TestAnInstanceThatIsNeededIsNotPutToSleep(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.arena(3)
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Instances: map[fleet.InstanceID]reports.InstanceReport{ids[0]: {Players: 2, PlayersKnown: true}}}))
	s.do("POST", "/api/v1/services/"+string(ids[0])+"/sleep", nil).want(409).naming("2 players")
	s.do("POST", "/api/v1/services/"+string(ids[1])+"/freeze", nil).want(200)
	s.do("POST", "/api/v1/services/"+string(ids[1])+"/sleep", nil).want(409).naming("frozen")
	s.status(ids[2], "node-1", fleet.Status{State: fleet.Starting})
	s.do("POST", "/api/v1/services/"+string(ids[2])+"/sleep", nil).want(409).naming("is starting")
}

func TestAnAllocationWakesOneSleepingInstance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(0)
	first, second := s.asleep("arena"), s.asleep("arena")
	s.claim(`,"slots":20`).want(409)
	s.claim(`,"slots":2`).want(503).naming("wakes")
	s.claim(`,"slots":2`).want(503)
	s.becomes("instance.wake", 1)
	for id, asleep := range map[fleet.InstanceID]bool{first: false, second: true} {
		if i, _ := s.view.Snapshot().Instances.Get(id); (i.Intent.Sleep != nil) != asleep {
			t.Errorf("%s sleeps: %v, want %v", i.Intent.Name, !asleep, asleep)
		}
	}
}

func TestAProxyWakesSleepingInstances(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.group("proxies", map[string]any{"platform": "VELOCITY"})
	proxy, server := s.inside("proxies", "node-1"), s.inside("lobby", "node-1")
	first, second := s.asleep("lobby"), s.asleep("lobby")
	server.do("POST", "/api/proxy/wake", `{"group":"lobby"}`).want(403)
	proxy.do("POST", "/api/proxy/wake", `{}`).want(422).naming("instanceId")
	proxy.do("POST", "/api/proxy/wake", `{"group":"nope"}`).want(404)
	proxy.do("POST", "/api/proxy/wake", `{"group":"proxies"}`).want(409)
	proxy.do("POST", "/api/proxy/wake", `{"group":"lobby"}`).want(200).is("status", "waking").is("instanceId", "lobby-2")
	proxy.do("POST", "/api/proxy/wake", `{"instanceId":"lobby-3"}`).want(200).is("status", "waking")
	proxy.do("POST", "/api/proxy/wake", `{"instanceId":"lobby-1"}`).want(200).is("status", "awake")
	for _, id := range []fleet.InstanceID{first, second} {
		if i, _ := s.view.Snapshot().Instances.Get(id); i.Intent.Sleep != nil {
			t.Errorf("%s still sleeps", i.Intent.Name)
		}
	}
}

func TestACommandWakesASleepingInstance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	id := s.asleep("lobby")
	s.do("POST", "/api/v1/services/"+string(id)+"/command", `{"command":"say"}`).want(503).naming("wakes now")
	if i, _ := s.view.Snapshot().Instances.Get(id); i.Intent.Sleep != nil {
		t.Error("it still sleeps")
	}
}

func TestSleepFieldsAreChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"sleepAfterEmptySeconds": 300, "wakeOn": "connect", "sleepMotd": "zzz"}).is("sleepAfterEmptySeconds", 300).is("wakeOn", "connect").is("sleepMotd", "zzz")
	s.do("PATCH", "/api/v1/groups/lobby", `{"sleepAfterEmptySeconds":60}`).want(200).is("sleepMotd", "zzz").is("sleepAfterEmptySeconds", 60)
	s.group("plain", nil).is("sleepAfterEmptySeconds", 0).is("wakeOn", "join").is("sleepMotd", "asleep, join to wake")
	rev := s.revision()
	for body, field := range map[string]string{
		`{"sleepAfterEmptySeconds":-1}`: "sleepAfterEmptySeconds",
		`{"wakeOn":"never"}`:            "wakeOn",
		`{"sleepMotd":"a\u0000b"}`:      "sleepMotd",
	} {
		s.do("PATCH", "/api/v1/groups/lobby", body).want(422).naming(field)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"sleepAfterEmptySeconds":"soon"}`).want(400).naming("sleepAfterEmptySeconds")
	if moved := s.moved(rev); len(moved) > 0 {
		t.Errorf("a refused change wrote %v", moved)
	}
}

// edit changes the intent of an instance, as the enforcer does.
func (s *site) edit(id fleet.InstanceID, change func(*fleet.Intent)) {
	s.t.Helper()
	i, ok := s.view.Snapshot().Instances.Get(id)
	if !ok {
		s.t.Fatalf("no instance %s", id)
	}
	next := i.Intent
	change(&next)
	s.commit(store.Replace(keys.Intent(id), next, next.ModRev))
}

func TestAnInstanceThatTakesNoPlayersYetIsNotPutToSleep(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	id := s.running("lobby")
	at := "/api/v1/services/" + string(id) + "/sleep"
	s.edit(id, func(next *fleet.Intent) { next.Warm = true })
	s.do("POST", at, nil).want(409).naming("is prepared for later")
	s.do("GET", "/api/instances/"+string(id), nil).want(200).is("state", "CREATING")
	s.edit(id, func(next *fleet.Intent) { next.Warm, next.Standby = false, true })
	s.do("POST", at, nil).want(409).naming("waits for its deployment")
	s.edit(id, func(next *fleet.Intent) { next.Standby = false })
	s.do("POST", at, nil).want(200)
}

func TestOnlyAUserWakesAnInstanceInMaintenance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.group("proxies", map[string]any{"platform": "VELOCITY"})
	proxy := s.inside("proxies", "node-1")
	id := s.asleep("lobby")
	s.publish("node-1", steve, players.Presence{By: proxy.id})
	s.commit(store.Create(keys.Maintenance(), cluster.Maintenance{Maintenance: fleet.Maintenance{On: true}}))
	rev := s.revision()
	proxy.do("POST", "/api/proxy/wake", `{"group":"lobby"}`).want(409).naming("maintenance")
	proxy.do("POST", "/api/proxy/wake", `{"instanceId":"lobby-1"}`).want(409).naming("maintenance")
	proxy.say("/api/plugin/transfer-to-group", `{"playerUuid":"`+string(steve)+`","group":"lobby"}`).want(409)
	if moved := s.moved(rev); len(moved) > 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
	s.do("POST", "/api/v1/services/"+string(id)+"/wake", nil).want(200).is("changed", true)
}

func TestAnInstanceThatCannotComeKeepsNoneAsleep(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(0)
	id := s.asleep("arena")
	s.start("arena") // it waits for a node
	lost := s.start("arena")
	s.status(lost, "node-1", fleet.Status{State: fleet.Offline})
	s.claim(`,"slots":2`).want(503).naming("wakes")
	if i, _ := s.view.Snapshot().Instances.Get(id); i.Intent.Sleep != nil {
		t.Error("it still sleeps")
	}
}

func TestARequestThatOnlyWakesAnInstanceCanBeSentAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(0)
	first, second := s.asleep("arena"), s.asleep("arena")
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"}],"slots":2}`, keyed, "a").want(503)
	s.status(first, "node-1", fleet.Status{State: fleet.Online})
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"}],"slots":2}`, keyed, "a").want(201)
	path := "/api/v1/services/" + string(second) + "/command"
	s.do("POST", path, `{"command":"say"}`, keyed, "b").want(503)
	s.status(second, "node-1", fleet.Status{State: fleet.Online})
	s.do("POST", path, `{"command":"say"}`, keyed, "b").want(200)
}

func TestABulkRestartLeavesSleepingInstancesAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.asleep("lobby")
	s.running("lobby")
	s.do("POST", instancesBulk, `{"action":"restart","groups":["lobby"]}`).want(200).is("selected", 1).is("data.0.id", "lobby-2")
}
