package apigateway

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// arena makes a group with ready instances for ten players each.
func (s *site) arena(instances int) (ids []fleet.InstanceID) {
	s.t.Helper()
	s.node("node-1", fleet.Resources{MemoryMiB: 1 << 20})
	s.group("arena", map[string]any{"maxPlayers": 10, "labels": map[string]string{"mode": "duels"}, "maxInstances": 0})
	for range instances {
		ids = append(ids, s.inside("arena", "node-1").id)
	}
	return ids
}

// claim makes an allocation from the group and returns it.
func (s *site) claim(fields string) *reply {
	s.t.Helper()
	return s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"}]`+fields+`}`)
}

func TestClaimsNeverExceedTheRoom(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.arena(3)
	b.soonInstance("arena-3")
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		claimed = map[string]int{}
		refused int
	)
	for n := range 40 { // 40 claims of 2 slots for 30 slots
		at := []*site{a, b}[n%2]
		wg.Go(func() {
			r, err := at.try("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"}],"slots":2}`)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case r.status == 201:
				claimed[fmt.Sprint(r.field("instanceId"))] += 2
			case r.status == 409:
				refused++
			default:
				t.Errorf("%d %s", r.status, r.raw)
			}
		})
	}
	wg.Wait()
	if refused != 25 || len(claimed) != 3 {
		t.Errorf("%d were refused, want 25; claimed %v", refused, claimed)
	}
	for name, n := range claimed {
		if n != 10 {
			t.Errorf("%s has %d claimed slots, want 10", name, n)
		}
	}
	list := a.do("GET", "/api/v1/allocations?pageSize=1", nil).want(200).is("total", 15.)
	id, _ := list.field("data.0.id").(string)
	a.do("DELETE", "/api/v1/allocations/"+id, nil).want(204)
	a.do("GET", "/api/v1/allocations/"+id, nil).want(404)
	a.do("DELETE", "/api/v1/allocations/"+id, nil).want(404)
	b.claim(`,"slots":2`).want(201) // no refusal while there is room, at any gateway
}

// soonInstance waits until this gateway shows a ready instance.
func (s *site) soonInstance(name string) {
	s.t.Helper()
	await.That(s.t, "the instance at the other gateway", func() string {
		i, ok := s.view.Snapshot().Find(name)
		return await.Unless(ok && i.State() == fleet.Online, "%s", name)
	})
}

func TestAWholeInstanceIsClaimedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.arena(2)
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Instances: map[fleet.InstanceID]reports.InstanceReport{ids[0]: {Players: 1, PlayersKnown: true}}}))
	r := s.claim(`,"note":"final"`).want(201).is("instanceId", "arena-2").is("slots", 0.).is("address", "10.0.0.1").is("port", 30000.).is("expiresAt", nil).is("note", "final")
	id, _ := r.field("id").(string)
	s.claim("").want(409).naming("no whole instance is free").naming("2 ready instances")
	s.claim(`,"slots":1`).want(201).is("instanceId", "arena-1")
	s.do("DELETE", "/api/v1/allocations/"+id+"?dryRun=true", nil).want(200).is("action", "release")
	s.claim("").want(409)
	s.do("DELETE", "/api/v1/allocations/"+id, nil).want(204)
	s.claim("").want(201).is("instanceId", "arena-2")
}

func TestSlotsOfAnInstanceThatStartsCountForTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(1)
	s.group("large", map[string]any{"maxPlayers": 100})
	s.start("large")
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"},{"group":"large"}],"slots":50}`).want(409).naming("1 that are about to be ready")
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"},{"group":"large"}],"slots":101}`).want(422).naming("slots")
}

func TestNoPlayerIsSentToAnInstanceThatIsClaimed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(2)
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	s.publish("node-1", steve, players.Presence{By: lobby.id})
	path, body := "/api/plugin/transfer-to-group", `{"playerUuid":"`+string(steve)+`","group":"arena"}`
	s.claim("").want(201).is("instanceId", "arena-1")
	lobby.say(path, body).want(200).is("targetInstanceId", "arena-2")
	s.claim(`,"slots":10`).want(201).is("instanceId", "arena-2")
	lobby.say(path, body).want(409)
}

func TestSelectorsAndStrategies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(2)
	s.group("lobby", map[string]any{"maxPlayers": 10})
	s.inside("lobby", "node-1")
	s.claim(`,"slots":3`).want(201).is("instanceId", "arena-1")
	s.claim(`,"slots":3`).want(201).is("instanceId", "arena-1")
	s.claim(`,"slots":3,"strategy":"spread"`).want(201).is("instanceId", "arena-2")
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"empty"},{"labels":"mode=duels"},{"group":"lobby"}],"slots":7}`).want(201).is("instanceId", "arena-2")
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"labels":"mode=duels"},{"group":"lobby"}],"slots":9}`).want(201).is("instanceId", "lobby-1")
	s.do("PATCH", "/api/v1/groups/arena", `{"maintenance":true}`).want(200)
	s.claim(`,"slots":1`).want(409)
}

func TestAnAllocationEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.arena(1)
	short, _ := s.claim(`,"slots":1,"ttlSeconds":1`).want(201).field("id").(string)
	long, _ := s.claim(`,"slots":1,"ttlSeconds":1`).want(201).field("id").(string)
	s.do("PATCH", "/api/v1/allocations/"+long, `{"ttlSeconds":600}`).want(200).is("ttlSeconds", 600.)
	await.That(t, "the end of the allocation", func() string {
		return await.Unless(s.do("GET", "/api/v1/allocations/"+short, nil).status == 404, "it is there")
	})
	s.do("GET", "/api/v1/allocations/"+long, nil).want(200)
	s.status(ids[0], "node-1", fleet.Status{State: fleet.Crashed})
	s.do("GET", "/api/v1/allocations/"+long, nil).want(404)
	s.do("PATCH", "/api/v1/allocations/"+long, `{"ttlSeconds":600}`).want(404)
}

func TestClaimsAreNotAudited(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.arena(1)
	before := len(s.told())
	id, _ := s.claim(`,"slots":1`).want(201).field("id").(string)
	s.do("PATCH", "/api/v1/allocations/"+id, `{"ttlSeconds":600}`).want(200)
	claims, err := store.Get(t.Context(), s.store, keys.Claims(ids[0]))
	if err != nil || len(claims.Claims) != 1 || claims.Claims[0].By != "admin" {
		t.Errorf("stored %+v, %v", claims, err)
	}
	s.do("DELETE", "/api/v1/allocations/"+id, nil).want(204)
	if after := len(s.told()); after != before {
		t.Errorf("%d audit entries for claims", after-before)
	}
}

func TestABadClaimLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.arena(1)
	before := s.revision()
	for body, names := range map[string]string{
		`{}`:               "selectors",
		`{"selectors":[]}`: "selectors",
		`{"selectors":[{"group":"arena","labels":"a=b"}]}`: "selectors[0]",
		`{"selectors":[{}]}`:                                                       "selectors[0]",
		`{"selectors":[{"labels":"a in ("}]}`:                                      "selectors[0].labels",
		`{"selectors":[{"group":"arena"}],"slots":-1}`:                             "slots",
		`{"selectors":[{"group":"arena"}],"slots":11}`:                             "no instance of the selected groups has more than 10",
		`{"selectors":[{"group":"arena"}],"ttlSeconds":` + fmt.Sprint(1<<30) + `}`: "ttlSeconds",
		`{"selectors":[{"group":"arena"}],"strategy":"random"}`:                    "strategy",
		fmt.Sprintf(`{"selectors":[{"group":"arena"}],"note":"%0*d"}`, 257, 0):     "note",
	} {
		s.do("POST", "/api/v1/allocations", body).want(422).naming(names)
	}
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"arena"}],"slot":1}`).want(400).naming("slot")
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"nowhere"}]}`).want(409).naming("no group matches")
	s.do("POST", "/api/v1/allocations?dryRun=true", `{"selectors":[{"group":"arena"}],"slots":1}`).want(200).is("instanceId", "arena-1")
	s.do("PATCH", "/api/v1/allocations/x", `{}`).want(422).naming("ttlSeconds")
	if moved := s.moved(before); len(moved) > 0 {
		t.Errorf("it wrote %v", moved)
	}
}

// A claim for an earlier run of an instance does not count for the next one.
func TestClaimsAreForOneRun(t *testing.T) {
	t.Parallel()
	i := &fleet.Instance{Intent: fleet.Intent{ID: "abc123", Generation: 2, Desired: fleet.DesiredRunning}}
	c := &allocation.Claims{Instance: "abc123", Generation: 1, Claims: []allocation.Claim{{ID: "abc123-1", Slots: 3, At: time.Now()}}}
	if n := c.Slots(i, 10); n != 0 {
		t.Errorf("%d slots of an earlier run count", n)
	}
	if c.Generation = 2; c.Slots(i, 10) != 3 {
		t.Errorf("%d slots count, want 3", c.Slots(i, 10))
	}
	if c.Claims[0].Slots = 0; c.Slots(i, 10) != 10 || c.Slots(i, 0) != 1 {
		t.Error("a claim on the whole instance does not take all of it")
	}
}
