package apigateway

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// games is a site with the groups bedwars and lobby, and one object of each kind in both. Their labels
// are game=bedwars and game=lobby.
type games struct {
	*site
	// objects are the names of the objects by kind and group.
	objects map[string]map[string]string
}

func newGames(t *testing.T) games {
	t.Helper()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 1 << 20})
	g := games{s, map[string]map[string]string{"instance": {}, "group": {}, "crash": {}, "allocation": {}, "player": {}, "share": {}}}
	for n, group := range []string{"bedwars", "lobby"} {
		s.group(group, map[string]any{"labels": map[string]string{"game": group}, "maxPlayers": 10, "maxInstances": 0, "env": map[string]string{"KEY": "of " + group}})
		id := s.running(fleet.GroupName(group))
		g.objects["group"][group], g.objects["instance"][group] = group, group+"-1"
		g.objects["crash"][group] = s.crash(n, time.Minute, func(c *reports.Crash) { c.Group, c.Name = fleet.GroupName(group), group+"-1" }).ID
		player := []players.PlayerID{steve, herobrine}[n]
		g.objects["player"][group] = string(player)
		s.publish("node-1", player, players.Presence{By: id, On: id, Group: fleet.GroupName(group)})
		g.objects["allocation"][group] = fmt.Sprint(s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"`+group+`"}],"slots":1}`).want(201).field("id"))
		s.do("POST", "/api/v1/groups/"+group+"/deploy", nil).want(202)
	}
	for _, group := range []string{"bedwars", "lobby"} {
		share := s.do("POST", "/api/v1/crashes/"+g.objects["crash"][group]+"/share", `{"isPrivate":true,"burnAfterRead":false}`).want(201)
		g.objects["share"][group] = fmt.Sprint(share.field("shareId"))
	}
	return g
}

// bind stores a binding of a role to a user.
func (s *site) bind(name, role, selector, user string) {
	s.t.Helper()
	sel, err := label.ParseSelector(selector)
	if err != nil {
		s.t.Fatal(err)
	}
	u, ok := s.view.Snapshot().Users.Get(user)
	if !ok {
		s.t.Fatalf("no user %s", user)
	}
	var rev int64
	if old, ok := s.view.Snapshot().Bindings.Get(name); ok {
		rev = old.ModRev
	}
	s.commit(store.Replace(keys.Binding(name), account.Binding{Name: name, Role: role, Selector: sel, Subjects: []string{u.ID()}}, rev))
}

// moderator creates a user who has a role in the groups that match a selector, and returns the site with
// a login.
func (s *site) moderator(name, role, selector string) *site {
	s.t.Helper()
	out := s.user(name, auth.RoleNone)
	s.bind(name, role, selector, name)
	return out
}

// pathOf returns a path with its first parameter replaced, and others by 1.
func pathOf(path, name string) string {
	parts := strings.Split(path, "/")
	for n, part := range parts {
		if strings.HasPrefix(part, ":") || strings.HasPrefix(part, "*") {
			parts[n], name = name, "1"
		}
	}
	return strings.Join(parts, "/")
}

// withoutScope are the routes that any token may use, with the reason why that reveals nothing about groups.
// Without an entry here, such a route fails the test.
var withoutScope = map[string]string{
	"GET /api/v1/applied":                     "each kind needs its permission in the whole fleet",
	"GET /api/v1/applied/:kind/:name":         "each kind needs its permission in the whole fleet",
	"PUT /api/v1/applied/:kind/:name":         "each kind needs its permission in the whole fleet",
	"DELETE /api/v1/applied/:kind/:name":      "each kind needs its permission in the whole fleet",
	"GET /api/v1/overview":                    "TestTheOverviewCountsTheGroupsOfItsCaller",
	"GET /api/v1/overview/timeseries":         "TestTheOverviewCountsTheGroupsOfItsCaller",
	"PATCH /api/v1/users/:name":               "users",
	"GET /api/v1/users/:name/preferences":     "users",
	"PUT /api/v1/users/:name/preferences":     "users",
	"PUT /api/v1/users/:name/minecraft":       "users",
	"DELETE /api/v1/users/:name/minecraft":    "users",
	"GET /api/v1/users/:name/sessions":        "users",
	"DELETE /api/v1/users/:name/sessions":     "users",
	"DELETE /api/v1/users/:name/sessions/:id": "users",
	"POST /api/v1/users/:name/avatar":         "users",
	"DELETE /api/v1/users/:name/avatar":       "users",
	"GET /api/v1/auth/second-factor":          "the caller's own",
	"POST /api/v1/auth/second-factor":         "the caller's own",
	"POST /api/v1/auth/second-factor/confirm": "the caller's own",
	"POST /api/v1/auth/second-factor/disable": "the caller's own",
	"POST /api/v1/auth/logout":                "the caller's own",
	"POST /api/v1/auth/change-password":       "the caller's own",
	"GET /api/v1/auth/me":                     "the caller's own",
	"POST /api/commands/execute":              "each command needs its permission in the whole fleet",
	"POST /api/cluster/nodes/:id/command":     "each command needs its permission in the whole fleet",
	"POST /api/cluster/nodes/:id":             "each command needs its permission in the whole fleet",
	"POST /api/console/ticket":                "each command needs its permission in the whole fleet",
	"GET /api/console":                        "each command needs its permission in the whole fleet",
	"GET /api/v1/system/logs/stream":          "system.logs.view in the whole fleet",
	"GET /api/v1/nodes/:id/logs/stream":       "system.logs.view in the whole fleet",
	"GET /api/v1/events/stream":               "TestEventsOfOtherGroupsAreNotSent",
	"GET /api/v1/services/:id/console":        "TestConsolesOfOtherGroupsDoNotExist",
	"GET /api/v1/instances/:id/console":       "TestConsolesOfOtherGroupsDoNotExist",
	"GET /api/v1/services/:id/attach":         "TestConsolesOfOtherGroupsDoNotExist",
	"GET /api/v1/instances/:id/attach":        "TestConsolesOfOtherGroupsDoNotExist",
	"GET /api/instances/:id/live-log":         "TestConsolesOfOtherGroupsDoNotExist",
}

func TestAModeratorReachesTheGroupsOfTheBindingOnly(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	mod := g.moderator("mara", auth.RoleAdmin, "game=bedwars")
	seen := map[string]bool{}
	var own []func()
	for _, r := range g.routes() {
		name := r.Method + " " + r.Path
		seen[name] = true
		switch what := r.Located(); {
		case what != "":
			theirs, ours := pathOf(r.Path, g.objects[what]["lobby"]), pathOf(r.Path, g.objects[what]["bedwars"])
			none := map[string]string{"player": "00000000-0000-4000-8000-000000000000"}[what]
			if none == "" {
				none = "nothing-7"
			}
			hidden, missing := mod.bare(r.Method, theirs), mod.bare(r.Method, pathOf(r.Path, none))
			if hidden.status != 404 || missing.status != 404 || hidden.raw != missing.raw {
				t.Errorf("%s: an object of another group is answered with %s, one that does not exist with %s", name, hidden.raw, missing.raw)
			}
			forbidden := slices.Contains(r.Demand.Permissions(), auth.TemplatesUpdate) // which no binding gives in some groups
			reaches := func() {
				if r := mod.bare(r.Method, ours); r.status == 401 || (r.status == 403) != forbidden || strings.Contains(r.raw, "there is no such "+what) {
					t.Errorf("%s: an own object is answered with %s", name, r.raw)
				}
			}
			if r.Method == "DELETE" {
				own = append(own, reaches)
			} else {
				own = append([]func(){reaches}, own...)
			}
		case r.IsAmong():
			check, ok := ofManyGroups[name]
			if !ok {
				t.Errorf("%s concerns many groups: add what it must leave out to ofManyGroups", name)
				continue
			}
			check(g, mod)
		case r.Demand.Open(), r.Demand.Self() && len(r.Demand.Permissions()) == 0: // needs no user
		case reflect.DeepEqual(r.Demand, server.Ticketed), len(r.Demand.Permissions()) == 0:
			if withoutScope[name] == "" {
				t.Errorf("%s is open to any token: say in withoutScope why it reveals no other groups", name)
			}
		default:
			if r := mod.bare(r.Method, pathOf(r.Path, "x")); r.status != 403 {
				t.Errorf("%s: %d without the permission in the whole fleet: %s", name, r.status, r.raw)
			}
		}
	}
	for _, reaches := range own {
		reaches()
	}
	for name := range withoutScope {
		if !seen[name] {
			t.Errorf("there is no route %s", name)
		}
	}
	for name := range ofManyGroups {
		if !seen[name] {
			t.Errorf("there is no route %s", name)
		}
	}
}

// bare sends a request with an empty JSON object as its body, and does not compare the response with the
// document.
func (s *site) bare(method, path string) *reply {
	s.t.Helper()
	var body any
	if method != "GET" {
		body = "{}"
	}
	r, err := s.try(method, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// onlyOwn checks that a response is about bedwars and not about lobby.
func (r *reply) onlyOwn() *reply {
	r.t.Helper()
	r.want(200)
	if strings.Contains(r.raw, "lobby") || strings.Contains(r.raw, string(herobrine)) || !strings.Contains(r.raw, "bedwars") {
		r.t.Errorf("%s: %s", r.what, r.raw)
	}
	return r
}

// ofManyGroups has a check for each route that concerns many groups: the moderator of bedwars must not
// see or reach lobby.
var ofManyGroups = map[string]func(g games, mod *site){
	"GET /api/v1/services": func(_ games, mod *site) {
		mod.do("GET", "/api/v1/services", nil).onlyOwn()
		mod.do("GET", "/api/v1/services?group=lobby", nil).want(200).is("total", 0)
		mod.do("GET", "/api/v1/services?all=true&node=node-1", nil).onlyOwn()
		old, err := mod.try("GET", "/api/v1/services?group=lobby", nil, "Accept", "", "User-Agent", "Go-http-client/1.1")
		if err != nil || old.status != 200 || strings.Contains(old.raw, "lobby") {
			mod.t.Errorf("PrexorCloud's client gets %s, %v", old.raw, err)
		}
	},
	"GET /api/v1/deployments": func(_ games, mod *site) {
		mod.do("GET", "/api/v1/deployments", nil).onlyOwn().is("total", 1)
		mod.do("GET", "/api/v1/deployments?state=in_progress", nil).onlyOwn()
		mod.do("GET", "/api/v1/deployments?state=COMPLETED", nil).want(200).is("total", 0)
		mod.do("GET", "/api/v1/deployments?state=done", nil).want(422).naming("ROLLED_BACK")
	},
	"GET /api/v1/instances": func(_ games, mod *site) { mod.do("GET", "/api/v1/instances", nil).onlyOwn() },
	"GET /api/instances": func(_ games, mod *site) {
		mod.do("GET", "/api/instances", nil).onlyOwn()
		mod.do("GET", "/api/instances?all=true", nil).onlyOwn()
	},
	"GET /api/configurations": func(_ games, mod *site) { mod.do("GET", "/api/configurations", nil).onlyOwn() },
	"GET /api/v1/groups": func(_ games, mod *site) {
		mod.do("GET", "/api/v1/groups", nil).onlyOwn().is("total", 1).is("data.0.env.KEY", "of bedwars")
	},
	"GET /api/v1/problems": func(g games, mod *site) {
		g.group("base", nil)
		for _, group := range []string{"bedwars", "lobby"} {
			g.do("PATCH", "/api/v1/groups/"+group, `{"dependsOn":["base"],"minInstances":3}`).want(200)
		}
		mod.do("GET", "/api/v1/problems", nil).onlyOwn().is("total", 1)
		g.do("GET", "/api/v1/problems", nil).want(200).naming(`"name":"lobby"`)
	},
	"GET /api/v1/crashes": func(_ games, mod *site) {
		mod.do("GET", "/api/v1/crashes", nil).onlyOwn().is("total", 1)
		mod.do("GET", "/api/v1/crashes?group=lobby", nil).want(200).is("total", 0)
	},
	"GET /api/v1/crashes/trends": func(_ games, mod *site) { mod.do("GET", "/api/v1/crashes/trends", nil).want(200).is("total", 1) },
	"GET /api/v1/players":        func(_ games, mod *site) { mod.do("GET", "/api/v1/players", nil).onlyOwn().is("total", 1) },
	"GET /api/v1/allocations":    func(_ games, mod *site) { mod.do("GET", "/api/v1/allocations", nil).onlyOwn().is("total", 1) },
	"GET /api/v1/shares": func(g games, mod *site) {
		mod.do("GET", "/api/v1/shares", nil).want(200).is("total", 1).is("data.0.id", g.objects["share"]["bedwars"])
	},
	"GET /api/v1/shares/:id": func(g games, mod *site) {
		mod.do("GET", "/api/v1/shares/"+g.objects["share"]["bedwars"], nil).want(200)
		hidden, missing := mod.do("GET", "/api/v1/shares/"+g.objects["share"]["lobby"], nil).want(404), mod.do("GET", "/api/v1/shares/nothing", nil).want(404)
		if hidden.raw != missing.raw {
			mod.t.Errorf("%s and %s", hidden.raw, missing.raw)
		}
		mod.do("GET", "/s/"+g.objects["share"]["bedwars"]+"/raw", nil).want(200)
		mod.do("GET", "/s/"+g.objects["share"]["lobby"]+"/raw", nil).want(403)
	},
	"POST /api/v1/shares/:id/revoke": func(g games, mod *site) {
		mod.do("POST", "/api/v1/shares/"+g.objects["share"]["lobby"]+"/revoke", nil).want(404)
	},
	"POST /api/v1/events/ticket": func(_ games, mod *site) { mod.do("POST", "/api/v1/events/ticket", nil).want(200) },
	"POST /api/instances": func(_ games, mod *site) {
		hidden := mod.do("POST", "/api/instances", `{"configurationName":"lobby"}`).want(400)
		if missing := mod.do("POST", "/api/instances", `{"configurationName":"nothing"}`).want(400); hidden.raw != missing.raw {
			mod.t.Errorf("%s and %s", hidden.raw, missing.raw)
		}
		mod.do("POST", "/api/instances", `{"configurationName":"bedwars"}`).want(201)
	},
	"POST /api/v1/allocations": func(_ games, mod *site) {
		mod.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"lobby"},{"labels":"game=lobby"}],"slots":1}`).want(409).is("error.message", "no group matches the selectors")
		mod.do("POST", "/api/v1/allocations?dryRun=true", `{"selectors":[{"group":"lobby"},{"labels":"game"}],"slots":1}`).onlyOwn()
	},
	"POST /api/v1/services/bulk":  func(_ games, mod *site) { mod.bulkReachesOnlyOwn("/api/v1/services/bulk") },
	"POST /api/v1/instances/bulk": func(_ games, mod *site) { mod.bulkReachesOnlyOwn("/api/v1/instances/bulk") },
}

func (s *site) bulkReachesOnlyOwn(path string) {
	s.t.Helper()
	s.do("POST", path+"?dryRun=true", `{"action":"stop","all":true}`).onlyOwn()
	s.do("POST", path+"?dryRun=true", `{"action":"stop","labels":"game=lobby"}`).want(200).is("selected", 0)
	s.do("POST", path, `{"action":"stop","groups":["lobby"]}`).want(422)
	s.do("POST", path, `{"action":"stop","ids":["lobby-1","nothing-7"]}`).want(200).is("succeeded", 0).
		is("data.0.error.message", "there is no instance lobby-1").is("data.1.error.message", "there is no instance nothing-7")
}

func TestTheOverviewCountsTheGroupsOfItsCaller(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	mod := g.moderator("mara", auth.RoleViewer, "game=bedwars")
	g.do("GET", "/api/v1/overview", nil).want(200).is("groupCount", 2).is("instanceCount", 2)
	mod.do("GET", "/api/v1/overview", nil).want(200).is("groupCount", 1).is("instanceCount", 1).is("nodeCount", 0)
	mod.do("GET", "/api/v1/overview/timeseries", nil).want(403)
}

func TestAScopedRoleGivesItsPermissionsAndNoOthers(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	g.do("POST", "/api/v1/roles", `{"name":"MODERATOR","permissions":["instances.view","instances.console","instances.stop","nodes.view","templates.update"]}`).want(201)
	mod := g.moderator("mara", "MODERATOR", "game=bedwars")
	mod.do("POST", "/api/v1/instances/bedwars-1/restart", nil).want(200)
	mod.do("POST", "/api/v1/instances/bedwars-1/command", `{"command":"op mara"}`).want(403)
	mod.do("DELETE", "/api/v1/instances/bedwars-1", nil).want(403)
	mod.do("GET", "/api/v1/groups/bedwars", nil).want(403)
	mod.do("GET", "/api/v1/groups", nil).want(403)
	mod.do("GET", "/api/v1/nodes", nil).want(403)
	mod.do("POST", "/api/v1/instances/bedwars-1/save-to-template", `{"template":"lobby/base"}`).want(403)
	mod.do("POST", "/api/v1/instances/bulk", `{"action":"kill","groups":["bedwars"]}`).want(200).is("selected", 1)
	mod.do("POST", "/api/v1/instances/bulk", `{"action":"delete","groups":["bedwars"]}`).want(403)

	// Fleet-wide permissions stay, and bindings add to them.
	eve := g.user("eve", auth.RoleViewer)
	g.bind("eve", "MODERATOR", "game in (bedwars)", "eve")
	eve.do("GET", "/api/v1/instances", nil).want(200).is("total", 2)
	eve.do("POST", "/api/v1/instances/lobby-1/restart", nil).want(403)
	eve.do("POST", "/api/v1/instances/nothing-7/restart", nil).want(403)
	eve.do("POST", "/api/v1/instances/bedwars-1/restart", nil).want(200)

	fleetwide := func() bool {
		all, _ := eve.do("GET", "/api/v1/auth/me", nil).want(200).field("fleetPermissions").([]any)
		return slices.Contains(all, any("instances.stop"))
	}
	if fleetwide() {
		t.Error("a binding with a selector gives a permission in the whole fleet")
	}
	// A binding without a selector is about the whole fleet.
	g.bind("eve", "MODERATOR", "", "eve")
	eve.do("POST", "/api/v1/instances/lobby-1/restart", nil).want(200)
	if !fleetwide() {
		t.Error("a binding without a selector gives no permission in the whole fleet")
	}
}

func TestTwoBindingsDoNotMix(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	g.do("POST", "/api/v1/roles", `{"name":"SENDER","permissions":["players.view","players.transfer"]}`).want(201)
	g.do("POST", "/api/v1/roles", `{"name":"WATCHER","permissions":["players.view","instances.view"]}`).want(201)
	mod := g.moderator("mara", "SENDER", "game=bedwars")
	g.bind("watch", "WATCHER", "game=lobby", "mara")
	mod.do("GET", "/api/v1/players", nil).want(200).is("total", 2)
	mod.do("POST", "/api/v1/players/"+string(steve)+"/transfer", `{"targetInstanceId":"lobby-1"}`).want(404).is("error.message", "there is no instance lobby-1")
	mod.do("POST", "/api/v1/players/"+string(herobrine)+"/transfer", `{"targetInstanceId":"bedwars-1"}`).want(403)
	mod.do("GET", "/api/v1/instances/bedwars-1", nil).want(403)
	mod.do("GET", "/api/v1/instances", nil).want(200).is("total", 1).is("data.0.group", "lobby")
}

func TestAnAPITokenHasAtMostTheScopeOfItsUser(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	mod := g.user("mara", "TOKENS")
	g.do("POST", "/api/v1/roles", `{"name":"TOKENS","permissions":["tokens.create"]}`).want(201)
	g.bind("mara", auth.RoleOperator, "game=bedwars", "mara")
	all, _ := mod.key(`{"name":"all"}`)
	all.do("GET", "/api/v1/instances", nil).want(200).is("total", 1)
	all.do("GET", "/api/v1/instances/lobby-1", nil).want(404)
	some, _ := mod.key(`{"name":"some","scopes":["instances.view"]}`)
	some.do("GET", "/api/v1/instances", nil).want(200).is("total", 1)
	some.do("POST", "/api/v1/instances/bedwars-1/restart", nil).want(403)
	mod.do("POST", "/api/v1/api-tokens", `{"name":"more","scopes":["users.update"]}`).want(403)
	g.bind("mara", auth.RoleOperator, "game=lobby", "mara")
	some.do("GET", "/api/v1/instances/lobby-1", nil).want(200)
	some.do("GET", "/api/v1/instances/bedwars-1", nil).want(404)
}

func TestCachedAnswersAreNotSharedAcrossScopes(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	bedwars, lobby := g.moderator("mara", auth.RoleViewer, "game=bedwars"), g.moderator("eve", auth.RoleViewer, "game=lobby")
	for _, path := range []string{"/api/v1/instances", "/api/v1/services?all=true", "/api/instances", "/api/instances?all=true", "/api/v1/groups", "/api/configurations"} {
		for range 3 { // more than once within the second for which lists are cached
			for who, want := range map[*site][2]bool{g.site: {true, true}, bedwars: {true, false}, lobby: {false, true}} {
				r := who.do("GET", path, nil, "Accept-Encoding", "identity").want(200)
				if got := [2]bool{strings.Contains(r.raw, `"bedwars"`), strings.Contains(r.raw, `"lobby"`)}; got != want {
					t.Errorf("%s has bedwars, lobby: %v, want %v: %s", path, got, want, r.raw)
				}
			}
		}
	}
}

func TestEventsOfOtherGroupsAreNotSent(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	mod := g.moderator("mara", auth.RoleViewer, "game=bedwars")
	from := g.revision()
	said := mod.stream("/api/v1/events/stream")
	all := g.stream("/api/v1/events/stream")
	g.do("PATCH", "/api/v1/groups/lobby", `{"minInstances":1}`).want(200)
	g.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"a":"b"}}`).want(200)
	g.do("PUT", "/api/v1/schedules/night", `{"group":"lobby","action":"stop","cron":"0 0 29 2 *","enabled":false}`).want(201)
	g.do("POST", "/api/v1/instances/lobby-1/stop", nil).want(200)
	g.do("POST", "/api/v1/groups", `{"name":"lobby-two","labels":{"game":"lobby"}}`).want(201)
	g.do("POST", "/api/v1/groups", `{"name":"bedwars-two","labels":{"game":"bedwars"}}`).want(201)
	g.do("DELETE", "/api/v1/groups/lobby-two", nil).want(204)
	g.do("DELETE", "/api/v1/groups/bedwars-two", nil).want(204)
	for _, name := range []fleet.GroupName{"lobby-two", "bedwars-two"} { // as the enforcer does
		if group, ok := g.view.Snapshot().Groups.Get(name); ok {
			g.commit(store.Remove(keys.Group(name), group.ModRev))
		}
	}
	g.do("PATCH", "/api/v1/groups/bedwars", `{"minInstances":1}`).want(200)
	last := fmt.Sprintf(`"sequence":%d`, g.revision())
	for _, text := range []*await.Text{said, all} {
		await.That(t, "the last event", func() string {
			return await.Unless(strings.Contains(text.String(), last), "%s", text)
		})
	}
	types := func(text string) (all []string) {
		for line := range strings.SplitSeq(text, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var e struct{ Type, GroupName string }
				if json.Unmarshal([]byte(data), &e) == nil && e.Type != "" {
					all = append(all, e.Type+" "+e.GroupName)
				}
			}
		}
		return all
	}
	got := types(said.String())
	for _, want := range []string{"GROUP_CREATED bedwars-two", "GROUP_DELETED bedwars-two", "GROUP_UPDATED bedwars"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing: %v", want, got)
		}
	}
	if strings.Contains(said.String(), "lobby") || strings.Contains(said.String(), "NODE_") || !strings.Contains(all.String(), "lobby-two") {
		t.Errorf("the moderator gets %s", said)
	}

	// Missed events are filtered too.
	again := mod.stream(fmt.Sprintf("/api/v1/events/stream?lastSequence=%d", from))
	await.That(t, "the last event", func() string {
		return await.Unless(strings.Contains(again.String(), last), "%s", again)
	})
	if strings.Contains(again.String(), "lobby") {
		t.Errorf("a resumed stream has %s", again)
	}
}

func TestAChangeOfABindingIsInForceOnOpenStreams(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	mod := g.moderator("mara", auth.RoleViewer, "game=bedwars")
	cut := func(what string, text *await.Text) {
		t.Helper()
		await.That(t, what+" is cut", func() string {
			return await.Unless(strings.Contains(text.String(), "cut off: ") && strings.Contains(text.String(), "ended: "), "%s", text)
		})
	}
	events, console := mod.stream("/api/v1/events/stream"), mod.stream("/api/v1/instances/bedwars-1/console")
	stays := g.stream("/api/v1/events/stream")
	g.bind("mara", auth.RoleViewer, "game=lobby", "mara")
	cut("the stream of events", events)
	cut("the console", console)

	// The labels of a group decide too.
	console = mod.stream("/api/v1/instances/lobby-1/console")
	g.do("PATCH", "/api/v1/groups/lobby", `{"labels":{"game":"other"}}`).want(200)
	cut("the console of a group with other labels", console)
	mod.do("GET", "/api/v1/groups/lobby", nil).want(404)
	if strings.Contains(stays.String(), "cut off") {
		t.Errorf("the administrator's stream ended: %s", stays)
	}
}

func TestConsolesOfOtherGroupsDoNotExist(t *testing.T) {
	t.Parallel()
	g := newGames(t)
	mod := g.moderator("mara", auth.RoleViewer, "game=bedwars")
	old := fmt.Sprint(mod.do("POST", "/api/v1/events/ticket", nil).want(200).field("ticket"))
	for _, path := range []string{"/api/v1/instances/%s/console", "/api/v1/services/%s/console", "/api/v1/instances/%s/attach", "/api/instances/%s/live-log"} {
		hidden, missing := mod.bare("GET", fmt.Sprintf(path, "lobby-1")), mod.bare("GET", fmt.Sprintf(path, "lobby-7"))
		if strings.ReplaceAll(hidden.raw, "lobby-1", "lobby-7") != missing.raw || hidden.status != missing.status {
			t.Errorf("%s: %s and %s", path, hidden.raw, missing.raw)
		}
		hidden = mod.as("").bare("GET", fmt.Sprintf(path, "lobby-1")+"?ticket="+old)
		missing = mod.as("").bare("GET", fmt.Sprintf(path, "lobby-7")+"?ticket="+old)
		if hidden.raw != missing.raw || hidden.status != missing.status {
			t.Errorf("%s with a ticket: %s and %s", path, hidden.raw, missing.raw)
		}
	}
	mod.do("GET", "/api/v1/instances/lobby-1/console", nil).want(404)
	mod.as("").stream("/api/v1/instances/bedwars-1/console?ticket=" + fmt.Sprint(mod.do("POST", "/api/v1/instances/bedwars-1/console/ticket", nil).want(200).field("ticket")))
	mod.as("").stream("/api/v1/instances/bedwars-1/console?ticket=" + fmt.Sprint(mod.do("POST", "/api/v1/events/ticket", nil).want(200).field("ticket")))
}
