package apigateway

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// told returns a summary of all audit entries, oldest first.
func (s *site) told() (all []string) {
	s.t.Helper()
	for _, e := range slices.Backward(s.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200).data()) {
		e, _ := e.(map[string]any)
		before, _ := json.Marshal(e["before"])
		after, _ := json.Marshal(e["after"])
		all = append(all, fmt.Sprintf("%v %v %s -> %s", e["action"], e["resourceId"], before, after))
	}
	return all
}

func TestAuditRecordsBeforeAndAfter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.do("PUT", "/api/v1/quotas/all", `{"selector":{"a":"b"},"limit":{"instances":5}}`).want(201)
	s.do("DELETE", "/api/v1/quotas/all", nil).want(204)
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
	s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"ssd":"1"}}`).want(200)
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)
	s.do("PUT", "/api/v1/secrets/db", `{"value":"x"}`).want(201)
	s.do("DELETE", "/api/v1/secrets/db", nil).want(204)
	s.do("PUT", "/api/v1/template-sources/repo", `{"kind":"git","url":"https://x.example/r.git","credentials":{"token":"t"}}`).want(201)
	s.do("PUT", "/api/v1/template-sources/repo", `{"kind":"git","url":"https://x.example/r.git","branch":"b"}`).want(200)
	s.do("DELETE", "/api/v1/template-sources/repo", nil).want(204)
	s.group("lobby", map[string]any{"memoryMb": 64, "env": map[string]string{"A": "1", "B": "2"}})
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":5,"env":{"A":null,"B":"3","C":"4"}}`).want(200)
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":1}`).want(200)
	id := s.start("lobby")
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200)
	s.do("DELETE", "/api/v1/services/lobby-1", nil).want(204)
	want := []string{
		`quota.create all null -> {"limit":{"instances":5},"reserved":{},"selector":{"a":"b"}}`,
		`quota.delete all {"limit":{"instances":5},"reserved":{},"selector":{"a":"b"}} -> null`,
		`node.cordon node-1 {"cordoned":false} -> {"cordoned":true}`,
		`node.update node-1 {"cordoned":true} -> {"cordoned":true,"labels":{"ssd":"1"}}`,
		`node.uncordon node-1 {"cordoned":true,"labels":{"ssd":"1"}} -> {"cordoned":false,"labels":{"ssd":"1"}}`,
		`secret.create db null -> {"keys":[""],"version":1}`,
		`secret.delete db {"keys":[""],"version":1} -> null`,
		`template-source.create repo null -> {"credentials":"***","kind":"git","url":"https://x.example/r.git"}`,
		`template-source.update repo {} -> {"branch":"b"}`,
		`template-source.delete repo {"branch":"b","credentials":"***","kind":"git","url":"https://x.example/r.git"} -> null`,
		"",
		`group.update lobby {"env":{"A":"1","B":"2"},"memoryMb":64} -> {"env":{"B":"3","C":"4"},"memoryMb":5}`,
		`group.scale lobby {"minInstances":0} -> {"minInstances":1}`,
		`group.start lobby null -> null`,
		`instance.stop ` + string(id) + ` {"desired":"running","generation":1,"group":"lobby","name":"lobby-1"} -> ` +
			`{"desired":"stopped","generation":1,"group":"lobby","name":"lobby-1","stop":{"force":false,"message":"stopped by admin","reason":"StopRequested"}}`,
		`instance.delete ` + string(id) + ` {"desired":"stopped","generation":1,"group":"lobby","name":"lobby-1",` +
			`"stop":{"force":false,"message":"stopped by admin","reason":"StopRequested"}} -> null`,
	}
	for n, got := range s.told() {
		switch {
		case n >= len(want) || want[n] != "" && got != want[n]:
			t.Errorf("%d: got %s", n, got)
		case want[n] == "" && !strings.HasPrefix(got, `group.create lobby null -> {`):
			t.Errorf("%d: got %s", n, got)
		}
	}
}

func TestAuditHidesProtectedValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.defining("lobby",
		content.Variable{Key: "KEY", Type: content.VariableString, Scope: content.ScopeGroup, Visibility: "ADMIN"},
		content.Variable{Key: "OPEN", Type: content.VariableString, Scope: content.ScopeGroup},
		secretVariable("DB", content.ScopeGroup))
	ports := []map[string]any{{"name": "admin", "protocol": "tcp", "port": 25600}}
	s.group("lobby", map[string]any{
		"templates": []string{"lobby"}, "additionalPorts": ports, "rcon": map[string]string{"port": "admin", "password": "hush-rcon-1"},
		"variableValues": map[string]string{"KEY": "hush-key-1", "DB": "hush-db-1", "OPEN": "said"},
	})
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"KEY":"hush-key-2","DB":"hush-db-2"},"rcon":{"password":"hush-rcon-2"}}`).want(200)
	s.defining("lobby") // hidden values stay hidden
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"KEY":null},"memoryMb":5}`).want(200)
	s.do("DELETE", "/api/v1/groups/lobby", nil).want(204)
	said := s.told()
	if all := strings.Join(said, "\n"); strings.Contains(all, "hush") || !strings.Contains(all, `"OPEN":"said"`) {
		t.Errorf("the audit has\n%s", all)
	}
	if want := `group.update lobby {"rcon":{"password":"***"},"variableValues":{"DB":"***","KEY":"***"}}`; !strings.HasPrefix(said[1], want) {
		t.Errorf("what changed is not told: %s", said[1])
	}
	for _, text := range []string{"hush-rcon", "hush-key", "hush-db"} {
		for _, key := range storetest.Holding(t, s.etcd.Endpoint, text) {
			if strings.HasPrefix(key, keys.AuditLog().String()) {
				t.Errorf("%s stands in %s", text, key)
			}
		}
	}
}

// entries adds n audit entries, numbered from 0, a second apart, by users 0 to 2 in turn.
func (s *site) entries(from time.Time, n int) {
	s.t.Helper()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	for some := range slices.Chunk(numbers, s.store.MaxOps()-1) {
		var writes []store.Write
		for _, i := range some {
			at := from.Add(time.Duration(i) * time.Second)
			id := ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()
			writes = append(writes, store.Create(keys.Audit(id), account.AuditEntry{AuditMark: account.AuditMark{
				ID: id, Username: fmt.Sprint("user-", i%3), Action: "quota.update", ResourceType: "quota", ResourceID: fmt.Sprint(i), CreatedAt: at,
			}}))
		}
		s.commit(writes...)
	}
}

// resources returns the resources of the entries on a page.
func (r *reply) resources() (out []string) {
	for _, e := range r.want(200).data() {
		e, _ := e.(map[string]any)
		out = append(out, fmt.Sprint(e["resourceId"]))
	}
	return out
}

func TestTheAuditIsReadByThePageAndFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	began := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	s.entries(began, 10)
	at := func(seconds int) string { return began.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339) }
	for query, want := range map[string][]string{
		"pageSize=3":                              {"9", "8", "7"},
		"pageSize=3&page=4":                       {"0"},
		"pageSize=3&page=5":                       nil,
		"limit=2&offset=3":                        {"6", "5"},
		"limit=2&page=3":                          {"5", "4"},
		"user=user-1":                             {"7", "4", "1"},
		"user=user-1&pageSize=1&page=2":           {"4"},
		"user=user-1&resourceId=4":                {"4"},
		"resourceType=group":                      nil,
		"resourceType=quota&resourceId=2":         {"2"},
		"action=quota.update&limit=1":             {"9"},
		"action=quota.create":                     nil,
		"since=" + at(8):                          {"9", "8"},
		"until=" + at(2):                          {"1", "0"},
		"since=" + at(3) + "&until=" + at(5):      {"4", "3"},
		"since=" + at(3) + "&user=user-0&limit=1": {"9"},
	} {
		if got := s.do("GET", "/api/v1/audit?class=CHANGE&"+query, nil).resources(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	s.do("GET", "/api/v1/audit?class=CHANGE&limit=2&offset=2", nil).is("total", 10).is("page", 2).is("pageSize", 2)
	s.do("GET", "/api/v1/audit?user=user-1", nil).is("total", 3).is("nextCursor", nil)
	for query, name := range map[string]string{"since=yesterday": "since", "until=1": "until", "limit=x": "limit", "offset=x": "offset", "page=x": "page"} {
		s.do("GET", "/api/v1/audit?"+query, nil).want(400).naming(name)
	}
}

func TestAuditCursorIgnoresNewEntries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	began := time.Now().Add(-time.Hour)
	s.entries(began, 7)
	var got []string
	for next, n := any(""), 0; next != nil && n < 10; n++ {
		page := s.do("GET", fmt.Sprintf("/api/v1/audit?class=CHANGE&cursor=%v&limit=3", next), nil)
		got = append(got, page.resources()...)
		page.is("total", 7+n)
		next = page.field("nextCursor")
		s.do("PUT", fmt.Sprint("/api/v1/quotas/new-", n), `{"selector":{"a":"b"},"limit":{"instances":5}}`).want(201)
	}
	if want := []string{"6", "5", "4", "3", "2", "1", "0"}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	s.do("GET", "/api/v1/audit?cursor=nonsense", nil).want(400).is("error.code", "BAD_CURSOR")
	s.do("GET", "/api/v1/audit?cursor=00000000000000000000000000", nil).want(200).is("data", []any{}).is("nextCursor", nil)
}

func TestAuditEntryHasTokenRequestAndRevision(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	key := s.as(s.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`).want(201).field("token").(string))
	id := s.do("GET", "/api/v1/api-tokens", nil).data()[0].(map[string]any)["id"]
	made := key.do("PUT", "/api/v1/quotas/all", `{"selector":{"a":"b"},"limit":{"instances":5}}`).want(201)
	rev, err := strconv.ParseInt(strings.Trim(made.header.Get("ETag"), `"`), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/api/v1/audit?resourceType=quota", nil).want(200).
		is("data.0.tokenId", id).is("data.0.role", "ADMIN").is("data.0.username", "admin").is("data.0.requestId", made.header.Get("X-Request-Id")).
		is("data.0.revision", rev).is("data.0.result", "SUCCESS").is("data.0.failure", "")
}

func TestUnconfirmedCommandIsAuditedAsFailed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.status(s.start("lobby"), "node-1", fleet.Status{State: fleet.Online})
	agent.Close()
	s.do("POST", "/api/v1/services/lobby-1/command", `{"command":"say hi"}`).want(503)
	s.do("GET", "/api/v1/audit?action=instance.command", nil).want(200).is("total", 1).is("data.0.result", "FAILED").is("data.0.details", "say hi")
}

func TestAuditIsTruncatedAboveItsLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const most = 10_000
	s.entries(time.Now().Add(-5*time.Hour), most+most/20)
	s.do("PUT", "/api/v1/quotas/all", `{"selector":{"a":"b"},"limit":{"instances":5}}`).want(201)
	await.That(t, "the oldest entries go", func() string {
		n := s.view.Snapshot().Audit.Len()
		return await.Unless(n <= most+1, "there are %d", n)
	})
	s.do("GET", "/api/v1/audit?limit=1&class=CHANGE", nil).is("total", most).is("data.0.resourceId", "all")
}

// audited returns the audit entries of an action, newest first.
func (s *site) audited(action string) []any {
	s.t.Helper()
	return s.do("GET", "/api/v1/audit?action="+action, nil).want(200).data()
}

// becomes waits until the audit has an action a number of times.
func (s *site) becomes(action string, times int) {
	s.t.Helper()
	await.That(s.t, fmt.Sprintf("%s is in the audit %d times", action, times), func() string {
		got := s.audited(action)
		return await.Unless(len(got) == times, "%v", got)
	})
}

func TestInstancesAndStrangersDoNotEvictUserEntries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	for class, mark := range map[account.AuditClass]account.AuditMark{
		account.AuditWorkload: {Username: account.InstanceActor("abc123"), Action: "player.transfer", ResourceType: "player"},
		account.AuditUnproven: {Action: account.ActionLoginFailed, ResourceType: "user"},
	} {
		const most, more = 2_000, 2_300
		for batch := range slices.Chunk(make([]struct{}, more), s.store.MaxOps()-1) {
			var writes []store.Write
			for range batch {
				one := mark
				one.ID, one.CreatedAt = ulid.MustNew(ulid.Now(), ulid.DefaultEntropy()).String(), time.Now()
				writes = append(writes, store.Create(keys.Audit(one.ID), account.AuditEntry{AuditMark: one}))
			}
			s.commit(writes...)
		}
		s.do("PATCH", "/api/v1/groups/lobby", map[string]any{"maxPlayers": 10 + int(class)}).want(200)
		await.That(t, class.String()+" is shortened", func() string {
			n := s.view.Snapshot().AuditTotals[class].Entries
			return await.Unless(n >= most && n <= most+most/20, "there are %d", n)
		})
	}
	if got := s.audited("group.create"); len(got) != 1 {
		t.Errorf("what somebody did is gone: %v", got)
	}
	s.do("GET", "/api/v1/history/group/lobby", nil).want(200).is("total", 3)
	s.do("GET", "/api/v1/audit?class=change&pageSize=1", nil).want(200).is("data.0.action", "group.update").is("data.0.class", "CHANGE")
	s.do("GET", "/api/v1/audit?class=nonsense", nil).want(400).naming("WORKLOAD")
}

func TestAuditExpiresAfterNinetyDaysExceptLastChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.entries(time.Now().Add(-100*24*time.Hour), 5)
	s.entries(time.Now().Add(-89*24*time.Hour), 2)
	if err := s.gateway.operate.PruneAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the old ones are gone", func() string {
		n := s.view.Snapshot().AuditTotals[account.AuditChange].Entries
		return await.Unless(n == 2, "there are %d changes", n)
	})
	old := newSite(t)
	old.entries(time.Now().Add(-100*24*time.Hour), 3)
	if err := old.gateway.operate.PruneAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.That(t, "one is left to tell how far back the past is known", func() string {
		n := old.view.Snapshot().AuditTotals[account.AuditChange].Entries
		return await.Unless(n == 1, "there are %d changes", n)
	})
}

func TestLoginFloodIsAuditedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.BehindProxy = []string{"127.0.0.1/32"} })
	from(s, "198.51.100.7", "admin", adminPassword).want(200)
	s.do("GET", "/api/v1/audit?action=auth.login", nil).want(200).is("data.0.username", "admin").is("data.0.ipAddress", "198.51.100.7").
		is("data.0.class", "LOGIN").is("data.0.details", "from the new network 198.51.100.7")
	for range 3 {
		from(s, "203.0.113.1", "admin", "wrong").want(401)
	}
	for n := range 8 {
		from(s, "203.0.113.1", fmt.Sprint("nobody", n), "wrong").want(401)
	}
	failed := s.do("GET", "/api/v1/audit?action=auth.login-failed", nil).want(200).is("total", 2).is("data.1.resourceId", "admin").is("data.1.class", "UNPROVEN").is("data.1.result", "FAILED").is("data.1.failure", "a wrong password")
	if strings.Contains(failed.raw, "nobody0") {
		t.Errorf("what was typed as a name is kept: %s", failed.raw)
	}
	before := len(s.audited("auth.login-failed"))
	for n := range 60 {
		from(s, fmt.Sprint("203.0.113.", 10+n), fmt.Sprint("nobody", 100+n), "wrong").want(401)
	}
	if n := len(s.audited("auth.login-failed")) - before; n < 20 || n > 50 {
		t.Errorf("of 60 wrong passwords from 60 networks %d are in the audit", n)
	}
}

func TestTokenUseFromNewAddressIsAuditedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.BehindProxy = []string{"127.0.0.1/32"} })
	ci, made := s.key(`{"name":"ci"}`)
	for range 2 {
		for _, address := range []string{"203.0.113.1", "203.0.113.2", "2001:db8::1", "2001:db8::2"} {
			ci.do("GET", "/api/v1/auth/me", nil, "X-Forwarded-For", address).want(200)
		}
		s.becomes("auth.new-address", 3)
	}
	s.do("GET", "/api/v1/audit?action=auth.new-address", nil).want(200).is("data.0.tokenId", made.field("id")).is("data.0.resourceType", "api-token").is("data.0.class", "LOGIN")
	s.do("GET", "/api/v1/auth/me", nil, "X-Forwarded-For", "203.0.113.9").want(200)
	s.becomes("auth.new-address", 4)
	s.do("GET", "/api/v1/audit?action=auth.new-address", nil).want(200).is("data.0.resourceId", "admin").is("data.0.details", "first use from 203.0.113.9")
}

func TestReadsOfConsolesAndFilesAreAuditedOnceAnHour(t *testing.T) {
	t.Parallel()
	b := secretive(t)
	id := b.there["/api/v1/services/:id"]
	for range 3 {
		b.do("GET", "/api/v1/services/"+id+"/files/content?path=a", nil).want(200)
		b.do("GET", "/api/v1/templates/lobby/files/content?path=a", nil).want(200)
		b.do("GET", "/api/templates/default/lobby/files/a", nil).want(200)
		b.do("GET", "/api/v1/services/"+id+"/files/content?path=b", nil).want(200)
		b.do("POST", "/api/templates/default/lobby/export", nil).want(200)
		b.do("GET", "/api/v1/services/"+id+"/console/history", nil)
		b.do("GET", "/api/instances/"+id+"/logs", nil)
		b.do("POST", "/api/commands/execute", `{"command":"instance logs `+id+`"}`)
	}
	b.becomes("file.read", 4)
	b.becomes("console.read", 1)
	b.do("GET", "/api/v1/audit?class=ACCESS&resourceType=instance&resourceId="+id, nil).want(200).is("total", 3).is("data.0.username", "all")
	b.do("GET", "/api/v1/history/instance/"+id, nil).want(200).is("data.0.action", "group.start") // a read changes nothing
	b.user("olga", "OPERATOR").do("GET", "/api/v1/services/"+id+"/files/content?path=a", nil).want(200)
	b.becomes("file.read", 5)
}

func TestEachEntryIsCopiedToTheSink(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	s := newSite(t, func(c *Config) { c.AuditSink = file })
	s.group("lobby", nil)
	await.That(t, "the entries are in the file", func() string {
		got, err := os.ReadFile(file)
		ok := err == nil && strings.Contains(string(got), `"action":"auth.login"`) && strings.Contains(string(got), `"action":"group.create"`)
		return await.Unless(ok, "%v: %s", err, got)
	})
}
