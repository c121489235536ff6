package apigateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// noChange has routes that take a body but change nothing that is audited, with the reason.
var noChange = map[string]string{
	"POST /api/v1/auth/refresh":                 "it is the login that it was",
	"POST /api/v1/events/ticket":                "tickets end by themselves, unused",
	"POST /api/v1/system/logs/ticket":           "tickets end by themselves, unused",
	"POST /api/v1/nodes/:id/logs/ticket":        "tickets end by themselves, unused",
	"POST /api/v1/services/:id/console/ticket":  "tickets end by themselves, unused",
	"POST /api/v1/instances/:id/console/ticket": "tickets end by themselves, unused",
	"POST /api/console/ticket":                  "tickets end by themselves, unused",
	"POST /api/commands/execute":                "the command is one that shows something; those that change are audited as what they do",
	"POST /api/cluster/nodes/:id/command":       "the command is one that shows something; those that change are audited as what they do",
	"POST /api/cluster/nodes/:id":               "the command is one that shows something; those that change are audited as what they do",
	"POST /api/templates/:group/:name/export":   "it reads",
	"POST /api/v1/nodes/:id/cache/refresh":      "a node tells anew what it has",
	"PUT /api/instances/:id/state":              "a heartbeat is a report",
}

// heldElsewhere has routes that cannot succeed on a single gateway, with the reason or the test that
// covers them.
var heldElsewhere = map[string]string{
	"POST /api/v1/allocations":                           "TestClaimsAreNotAudited",
	"PATCH /api/v1/allocations/:id":                      "TestClaimsAreNotAudited",
	"DELETE /api/v1/allocations/:id":                     "TestClaimsAreNotAudited",
	"POST /api/v1/services/:id/backups":                  "TestAWorldIsBackedUpByAScheduleAndRestored in e2e",
	"DELETE /api/v1/services/:id/backups/:backup":        "TestAWorldIsBackedUpByAScheduleAndRestored in e2e",
	"POST /api/v1/services/:id/backups/:backup/restore":  "TestAWorldIsBackedUpByAScheduleAndRestored in e2e",
	"POST /api/v1/instances/:id/backups":                 "TestAWorldIsBackedUpByAScheduleAndRestored in e2e",
	"DELETE /api/v1/instances/:id/backups/:backup":       "TestAWorldIsBackedUpByAScheduleAndRestored in e2e",
	"POST /api/v1/instances/:id/backups/:backup/restore": "TestAWorldIsBackedUpByAScheduleAndRestored in e2e",
	"POST /api/v1/simulate":                              "it reads, and takes a scheduler",
	"POST /api/v1/groups/:name/autoscale/replay":         "it reads, and takes an enforcer",
	"POST /api/v1/system/sealing-key/rotate":             "TestARotationSealsEverythingAgain, TestARotationThatWasCutOffContinues",
	"POST /api/v1/system/shutdown":                       "TestAReplicaThatIsAskedToEndsAndTheOtherServesOn",
	"POST /api/v1/auth/password-reset/request":           "TestAForgottenPasswordIsResetOnceByItsToken",
	"POST /api/v1/auth/password-reset/complete":          "TestAForgottenPasswordIsResetOnceByItsToken",
	"POST /api/v1/auth/second-factor":                    "TestASecondFactorIsEnrolledConfirmedAskedForAndDisabled",
	"POST /api/v1/auth/second-factor/confirm":            "TestASecondFactorIsEnrolledConfirmedAskedForAndDisabled",
	"POST /api/v1/auth/second-factor/disable":            "TestASecondFactorIsEnrolledConfirmedAskedForAndDisabled",
	"POST /api/v1/auth/oidc/exchange":                    "TestAGrantIsRedeemedOnceAndByTheClientThatBegan: the login was audited before",
	"DELETE /api/v1/users/:name/second-factor":           "TestAnAdministratorRemovesTheFactorOfAnotherUser",
	"POST /api/v1/players/:uuid/message":                 "TestAUserSendsAMessageToAPlayer",
	"POST /api/v1/players/:uuid/transfer":                "TestATransferIsPendingAtThePlayersProxyUntilThePlayerIsThere",
	"POST /api/v1/template-sources/:name/webhook":        "TestASourceIsLookedAtWhenAskedOrCalled",
	"POST /api/v1/services/:id/save-to-template":         "TestARunningInstancesConfigurationIsSavedToATemplate",
	"POST /api/v1/instances/:id/save-to-template":        "TestARunningInstancesConfigurationIsSavedToATemplate",
	"POST /api/v1/services/:id/sleep":                    "TestAnInstanceSleepsAndWakes",
	"POST /api/v1/services/:id/wake":                     "TestAnInstanceSleepsAndWakes",
	"POST /api/v1/instances/:id/sleep":                   "TestAnInstanceSleepsAndWakes",
	"POST /api/v1/instances/:id/wake":                    "TestAnInstanceSleepsAndWakes",
	"POST /api/v1/schedules/:name/run":                   "TestARunOfAScheduleStopsItsInstances: what the run does is audited too",
	"POST /api/v1/nodes/:id/shutdown":                    "TestANodeIsShutDownByItsAgent",
	"POST /api/v1/services/:id/move":                     "TestAStaticInstanceIsMovedAndItsMoveCancelled",
	"POST /api/v1/instances/:id/move":                    "TestAStaticInstanceIsMovedAndItsMoveCancelled",
	"DELETE /api/v1/services/:id/move":                   "TestAStaticInstanceIsMovedAndItsMoveCancelled",
	"DELETE /api/v1/instances/:id/move":                  "TestAStaticInstanceIsMovedAndItsMoveCancelled",
	"POST /api/node/reload":                              "TestAReloadWaitsForEverySourceAndTellsWhatIsOther",
}

// change is a request that changes something.
type change struct {
	// route is the route's pattern. at is the path to request if it differs from existing objects, or a
	// query to append.
	route, at, body string
	header          []string
}

// changes returns one request per route, in an order in which each changes something.
func (b *besieged) changes(t *testing.T) []change {
	t.Helper()
	text := func(path, field string, r *reply) { b.there[path], _ = r.field(field).(string) }
	text("/api/v1/api-tokens/:id", "id", b.do("POST", "/api/v1/api-tokens", `{"name":"old"}`).want(201))
	text("/api/v1/admin/tokens/:id", "tokenId", b.do("POST", "/api/v1/admin/tokens", `{"nodeId":"old"}`).want(201))
	shared := b.do("POST", "/api/v1/system/logs/share", `{"burnAfterRead":false}`).want(201)
	text("/s/:id", "shareId", shared)
	text("/api/v1/shares/:id", "shareId", b.do("POST", "/api/v1/system/logs/share", `{}`).want(201))
	text("/api/v1/workloads/credentials/:id", "data.0.tokenId", b.do("GET", "/api/v1/workloads/credentials", nil).want(200))
	b.commit(store.Create(keys.CrashLoop("lobby"), crashloop.Loop{Group: "lobby", GroupRevision: 1, Level: 1, Since: time.Now(), PausedUntil: time.Now().Add(time.Hour)}))
	b.there["/api/v1/crashes/:id"] = b.crash(1, time.Hour, nil).ID
	b.node("node-2", fleet.Resources{MemoryMiB: 4096})
	b.loseNode("node-2")
	b.group("other", nil)
	b.do("POST", "/api/v1/groups/other/deploy", nil).want(202)
	b.commit(store.Create(keys.DeploymentProgress("other", 1), deployment.Progress{Group: "other", Number: 1, State: deployment.Completed}))
	b.do("POST", "/api/v1/groups/other/deploy", `{"strategy":"canary"}`).want(202)
	b.do("PUT", "/api/v1/templates/lobby/files/content?path=c", `{"content":"1"}`).want(200) // the current version is now another
	avatar, avatarMedia := pictureForm(t, "avatar", "GIF89a\x01\x00\x01\x00\x00\x00\x00;")
	archive := zipped(t, member{name: "z.txt", content: "z"})
	upload, uploadMedia := form(t, nil, "u.zip", archive)
	imported, importedMedia := form(t, map[string]string{"name": "three"}, "a.zip", archive)
	tom := b.user("tom", "VIEWER")
	one := tom.do("GET", "/api/v1/users/tom/sessions", nil).want(200).field("data.0.id")
	bulk := b.start("other")
	ended := func() string {
		id := b.start("other")
		b.status(id, "node-1", fleet.Status{State: fleet.Stopped})
		return string(id)
	}
	return []change{
		{route: "POST /api/v1/auth/login", body: `{"username":"admin","password":"` + adminPassword + `"}`},
		{route: "POST /api/v1/auth/refresh"},
		{route: "POST /api/v1/auth/keys/rotate"},
		{route: "POST /api/v1/api-tokens", body: `{"name":"x"}`},
		{route: "DELETE /api/v1/api-tokens/:id"},
		{route: "POST /api/v1/admin/tokens", body: `{"nodeId":"new"}`},
		{route: "DELETE /api/v1/admin/tokens/:id"},

		{route: "POST /api/v1/users", body: creates["POST /api/v1/users"]},
		{route: "PATCH /api/v1/users/:name", body: `{"role":"OPERATOR"}`},
		{route: "PUT /api/v1/users/:name/preferences", body: `{"theme":"dark"}`},
		{route: "PUT /api/v1/users/:name/minecraft", body: replaced["PUT /api/v1/users/:name/minecraft"][1]},
		{route: "DELETE /api/v1/users/:name/minecraft"},
		{route: "POST /api/v1/users/:name/avatar", body: avatar, header: []string{"Content-Type", avatarMedia}},
		{route: "DELETE /api/v1/users/:name/avatar"},
		{route: "DELETE /api/v1/users/:name"},
		{route: "POST /api/v1/roles", body: creates["POST /api/v1/roles"]},
		{route: "PUT /api/v1/applied/:kind/:name", body: `{"document":{"permissions":["groups.view"]}}`},
		{route: "DELETE /api/v1/applied/:kind/:name"},
		{route: "PATCH /api/v1/roles/:name", body: `{"permissions":["groups.view"]}`},
		{route: "DELETE /api/v1/roles/:name"},

		{route: "POST /api/v1/cluster/config", body: creates["POST /api/v1/cluster/config"]},
		{route: "POST /api/v1/cluster/config/rollback", body: `{"targetVersion":0}`},
		{route: "PATCH /api/v1/admin/cors/origins", body: replaced["PATCH /api/v1/admin/cors/origins"][1]},
		{route: "PATCH /api/v1/admin/network/allowed-subnets", body: replaced["PATCH /api/v1/admin/network/allowed-subnets"][1]},
		{route: "PUT /api/v1/maintenance", body: `{"enabled":true}`},
		{route: "PUT /api/v1/maintenance", body: `{"enabled":false}`},
		{route: "PUT /api/v1/quotas/:name", body: `{"selector":{"tenant":"acme"},"limit":{"instances":9}}`},
		{route: "DELETE /api/v1/quotas/:name"},
		{route: "POST /api/v1/service-accounts", body: creates["POST /api/v1/service-accounts"]},
		{route: "PATCH /api/v1/service-accounts/:name", body: `{"role":"VIEWER"}`},
		{route: "DELETE /api/v1/service-accounts/:name"},
		{route: "PUT /api/v1/bindings/:name", body: `{"role":"VIEWER","selector":"game=bedwars"}`},
		{route: "DELETE /api/v1/bindings/:name"},
		{route: "PUT /api/v1/schedules/:name", body: `{"group":"other","action":"restart","cron":"0 0 29 2 *"}`},
		{route: "PATCH /api/v1/schedules/:name", body: `{"jitterSeconds":5}`},
		{route: "DELETE /api/v1/schedules/:name"},
		{route: "PUT /api/v1/overlays/:name", body: `{"groups":["other"],"from":"2099-01-01T00:00:00Z","until":"2099-01-02T00:00:00Z","overlay":{"maxInstances":9}}`},
		{route: "PATCH /api/v1/overlays/:name", body: `{"enabled":false}`},
		{route: "DELETE /api/v1/overlays/:name"},
		{route: "POST /api/v1/notices", body: creates["POST /api/v1/notices"]},
		{route: "PUT /api/v1/notices/:name", body: `{"url":"http://localhost:1/","events":["*"],"enabled":false}`},
		{route: "PATCH /api/v1/notices/:name", body: `{"minSeverity":"warning"}`},
		{route: "POST /api/v1/notices/:name/test"},
		{route: "DELETE /api/v1/notices/:name"},
		{route: "PUT /api/v1/secrets/:name", body: `{"value":"other"}`},
		{route: "DELETE /api/v1/secrets/:name"},
		{route: "PUT /api/v1/template-sources/:name", body: `{"kind":"git","url":"https://host/other"}`},
		{route: "POST /api/v1/template-sources/:name/sync"},
		{route: "DELETE /api/v1/template-sources/:name"},
		{route: "POST /api/v1/networks", body: creates["POST /api/v1/networks"]},
		{route: "PUT /api/v1/networks/:name", body: `{"lobbyGroup":"lobby","kickMessage":"later"}`},
		{route: "DELETE /api/v1/networks/:name"},
		{route: "POST /api/v1/catalog/:platform/versions", body: strings.Replace(creates["POST /api/v1/catalog/:platform/versions"], "1.21", "1.22", 1)},
		{route: "PATCH /api/v1/catalog/:platform/versions/:version", body: `{"category":"PROXY"}`},
		{route: "PUT /api/v1/catalog/:platform/versions/:version/recommended"},
		{route: "DELETE /api/v1/catalog/:platform/versions/:version", at: "/api/v1/catalog/paper/versions/1.22"},

		{route: "POST /api/v1/groups", body: creates["POST /api/v1/groups"]},
		{route: "PUT /api/v1/groups/:name", at: "/api/v1/groups/one", body: `{"memoryMb":99}`},
		{route: "PATCH /api/v1/groups/:name", at: "/api/v1/groups/one", body: `{"memoryMb":98}`},
		{route: "POST /api/v1/groups/:name/scale", at: "/api/v1/groups/one/scale", body: `{"targetInstances":1}`},
		{route: "DELETE /api/v1/groups/:name", at: "/api/v1/groups/one"},
		{route: "PUT /api/configurations/:name", at: "/api/configurations/two", body: `{}`},
		{route: "DELETE /api/configurations/:name", at: "/api/configurations/two"},

		{route: "POST /api/v1/groups/:name/crash-loop/reset"},
		{route: "POST /api/v1/groups/:name/deployments/:rev/pause", at: "/api/v1/groups/other/deployments/2/pause"},
		{route: "POST /api/v1/groups/:name/deployments/:rev/resume", at: "/api/v1/groups/other/deployments/2/resume"},
		{route: "POST /api/v1/groups/:name/deployments/:rev/promote", at: "/api/v1/groups/other/deployments/2/promote"},
		{route: "POST /api/v1/groups/:name/deployments/:rev/rollback", at: "/api/v1/groups/other/deployments/2/rollback"},
		{route: "POST /api/v1/groups/:name/deployments/:rev/cancel", at: "/api/v1/groups/other/deployments/3/cancel"},
		{route: "POST /api/v1/groups/:name/deploy", at: "/api/v1/groups/other/deploy"},
		{route: "POST /api/v1/groups/:name/deployments/:rev/cancel"},
		{route: "POST /api/v1/groups/:name/restart"},
		{route: "POST /api/v1/groups/:name/start"},
		{route: "POST /api/v1/services/:id/command", body: `{"command":"say"}`},
		{route: "POST /api/v1/instances/:id/command", body: `{"command":"say"}`},
		{route: "POST /api/instances/:id/execute", body: `{"command":"say"}`},
		{route: "PUT /api/v1/services/:id/files/content", at: "?path=a", body: `{"content":"a"}`},
		{route: "POST /api/v1/services/:id/files/upload", body: upload, header: uploadMedia},
		{route: "POST /api/v1/services/:id/files/mkdir", body: `{"path":"b"}`},
		{route: "POST /api/v1/services/:id/files/rename", body: `{"from":"a","to":"b"}`},
		{route: "POST /api/v1/services/:id/files/restore", body: `{"version":"v1"}`},
		{route: "DELETE /api/v1/services/:id/files", at: "?path=a"},
		{route: "PUT /api/v1/instances/:id/files/content", at: "?path=a", body: `{"content":"a"}`},
		{route: "POST /api/v1/instances/:id/files/upload", body: upload, header: uploadMedia},
		{route: "POST /api/v1/instances/:id/files/mkdir", body: `{"path":"b"}`},
		{route: "POST /api/v1/instances/:id/files/rename", body: `{"from":"a","to":"b"}`},
		{route: "POST /api/v1/instances/:id/files/restore", body: `{"version":"v1"}`},
		{route: "DELETE /api/v1/instances/:id/files", at: "?path=a"},
		{route: "POST /api/v1/services/bulk", body: `{"action":"stop","ids":["` + string(bulk) + `"]}`},
		{route: "POST /api/v1/instances/bulk", body: `{"action":"start","ids":["` + string(bulk) + `"]}`},
		{route: "POST /api/v1/nodes/bulk", body: `{"action":"cordon","ids":["node-1"]}`},
		{route: "POST /api/v1/nodes/bulk", body: `{"action":"uncordon","labels":"!none"}`},
		{route: "POST /api/v1/services/:id/freeze"},
		{route: "POST /api/v1/services/:id/unfreeze"},
		{route: "POST /api/v1/instances/:id/freeze"},
		{route: "POST /api/v1/instances/:id/unfreeze"},
		{route: "POST /api/v1/services/:id/stop"},
		{route: "POST /api/v1/services/:id/start"},
		{route: "POST /api/v1/instances/:id/stop"},
		{route: "POST /api/v1/instances/:id/start"},
		{route: "POST /api/v1/services/:id/force-stop"},
		{route: "POST /api/v1/services/:id/restart"},
		{route: "POST /api/v1/instances/:id/force-stop"},
		{route: "POST /api/v1/instances/:id/restart"},
		{route: "DELETE /api/instances/:id"},
		{route: "PATCH /api/instances/:id/lifecycle", at: "?target=start"},
		{route: "DELETE /api/v1/services/:id", at: "/api/v1/services/" + ended()},
		{route: "DELETE /api/v1/instances/:id", at: "/api/v1/instances/" + ended()},
		{route: "POST /api/instances", body: `{"configurationName":"lobby"}`},
		{route: "PUT /api/instances/:id/state", body: `{"state":"ONLINE"}`},

		{route: "POST /api/v1/crashes/:id/share", body: `{}`},
		{route: "POST /api/v1/system/logs/share", body: `{}`},
		{route: "POST /api/v1/nodes/:id/logs/share", body: `{}`},
		{route: "POST /api/v1/services/:id/console/share", body: `{}`},
		{route: "POST /api/v1/instances/:id/console/share", body: `{}`},
		{route: "POST /api/v1/system/diagnostics/share", body: `{}`},
		{route: "POST /api/v1/shares/:id/revoke"},
		{route: "DELETE /s/:id", at: "?token=" + fmt.Sprint(shared.field("deleteToken"))},

		{route: "POST /api/v1/events/ticket"},
		{route: "POST /api/v1/system/logs/ticket"},
		{route: "POST /api/v1/nodes/:id/logs/ticket"},
		{route: "POST /api/v1/services/:id/console/ticket"},
		{route: "POST /api/v1/instances/:id/console/ticket"},
		{route: "POST /api/console/ticket"},
		{route: "POST /api/commands/execute", body: `{"command":"help"}`},
		{route: "POST /api/cluster/nodes/:id/command", body: `{"command":"help"}`},
		{route: "POST /api/cluster/nodes/:id", body: `{"command":"help"}`},

		{route: "PATCH /api/v1/nodes/:id", body: `{"labels":{"a":"b"}}`},
		{route: "POST /api/v1/nodes/:id/cordon"},
		{route: "POST /api/v1/nodes/:id/uncordon"},
		{route: "POST /api/v1/nodes/:id/drain"},
		{route: "POST /api/v1/nodes/:id/undrain"},
		{route: "POST /api/v1/nodes/:id/revoke-cert", at: "/api/v1/nodes/node-2/revoke-cert", body: `{}`},
		{route: "POST /api/v1/nodes/:id/unrevoke-cert", at: "/api/v1/nodes/node-2/unrevoke-cert"},
		{route: "POST /api/v1/nodes/:id/cache/refresh"},
		{route: "POST /api/v1/nodes/:id/cache/warm", body: `{"templates":["lobby"]}`},
		{route: "DELETE /api/v1/nodes/:id", at: "/api/v1/nodes/node-2"},
		{route: "DELETE /api/v1/workloads/credentials/:id"},
		{route: "DELETE /api/v1/workloads/credentials/instances/:id", at: "/api/v1/workloads/credentials/instances/" + string(b.inside("other", "node-1").id)},

		{route: "POST /api/v1/templates", body: creates["POST /api/v1/templates"]},
		{route: "POST /api/v1/templates/import", body: imported, header: importedMedia},
		{route: "POST /api/v1/templates/sync", body: `{"pattern":"*"}`},
		{route: "POST /api/templates/sync", body: `{"pattern":"*"}`},
		{route: "PATCH /api/v1/templates/:name", body: `{"description":"other"}`},
		{route: "DELETE /api/v1/templates/:name/versions/:hash"},
		{route: "PUT /api/v1/templates/:name/files/content", at: "?path=d", body: `{"content":"d"}`},
		{route: "POST /api/v1/templates/:name/rollback"},
		{route: "POST /api/v1/templates/:name/files/mkdir", body: `{"path":"e"}`},
		{route: "POST /api/v1/templates/:name/files/rename", body: `{"from":"e","to":"f"}`},
		{route: "POST /api/v1/templates/:name/files/upload", body: upload, header: uploadMedia},
		{route: "POST /api/v1/templates/:name/files/extract", at: "?path=u.zip"},
		{route: "DELETE /api/v1/templates/:name/files", at: "?path=f"},
		{route: "PUT /api/v1/templates/:name/variables", body: `[{"key":"key"}]`},
		{route: "PUT /api/v1/templates/:name/files/content", at: "?path=g&rehash=false", body: `{"content":"g"}`},
		{route: "POST /api/v1/templates/:name/rehash"},
		{route: "PUT /api/v1/templates/:name/files/content", at: "?path=h&rehash=false", body: `{"content":"h"}`},
		{route: "DELETE /api/v1/templates/:name/draft"},
		{route: "PATCH /api/templates/:group/:name/files/*path", body: "other", header: []string{"Content-Type", "text/plain"}},
		{route: "POST /api/templates/:group/:name/files/*path", at: "/api/templates/default/lobby/files/i", body: "i", header: []string{"Content-Type", "text/plain"}},
		{route: "DELETE /api/templates/:group/:name/files/*path"},
		{route: "POST /api/templates/:group/:name/import", body: archive, header: []string{"Content-Type", "application/zip"}},
		{route: "POST /api/templates/:group/:name/sync"},
		{route: "POST /api/templates/:group/:name/export"},
		{route: "DELETE /api/v1/templates/:name", at: "/api/v1/templates/one"},

		{route: "DELETE /api/v1/users/:name/sessions/:id", at: "/api/v1/users/tom/sessions/" + fmt.Sprint(one)},
		{route: "DELETE /api/v1/users/:name/sessions", at: "/api/v1/users/tom/sessions"},
		{route: "POST /api/v1/auth/logout", header: []string{"Authorization", "Bearer " + b.login("all", adminPassword)}},
		{route: "POST /api/v1/auth/change-password", body: `{"currentPassword":"` + adminPassword + `","newPassword":"another horse"}`},
	}
}

func TestEveryMutatingRouteIsAuditedOnce(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	watcher := b.as(b.login("admin", adminPassword))
	entries := func() float64 {
		changes, _ := watcher.do("GET", "/api/v1/audit?pageSize=1&class=CHANGE", nil).want(200).field("total").(float64)
		logins, _ := watcher.do("GET", "/api/v1/audit?pageSize=1&class=LOGIN", nil).want(200).field("total").(float64)
		return changes + logins
	}
	asked := map[string]bool{}
	for _, ch := range b.changes(t) {
		method, path, _ := strings.Cut(ch.route, " ")
		n := slices.IndexFunc(b.routes(), func(r server.Route) bool { return r.Method == method && r.Path == path })
		if n < 0 {
			t.Errorf("%s is no route", ch.route)
			continue
		}
		r := b.routes()[n]
		asked[ch.route] = true
		at := ch.at
		if !strings.HasPrefix(at, "/") {
			at = b.path(r, -1, "") + at
		}
		before := entries()
		got := b.send(r, at, strings.NewReader(ch.body), ch.header...)
		want := 1.0
		if noChange[ch.route] != "" {
			want = 0
		}
		if left := entries() - before; got.status/100 != 2 || left != want {
			t.Errorf("%s: %d, and %v entries in the audit, want %v: %.300s", got.what, got.status, left, want, got.raw)
		}
	}
	for _, r := range b.routes() {
		name := r.Method + " " + r.Path
		switch op := operationOf(b.contract, r); {
		case r.Method == http.MethodGet, op["x-later"] == true, asked[name] && heldElsewhere[name] == "":
		case strings.HasPrefix(r.Path, "/api/plugin/"), strings.HasPrefix(r.Path, "/api/proxy/"): // reports of instances are not audited
		case asked[name] || heldElsewhere[name] == "":
			t.Errorf("%s changes something: put a request into changes, or say in heldElsewhere why not", name)
		}
	}
}
