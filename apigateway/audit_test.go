package apigateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// told are what the audit says of each change, oldest first.
func (s *site) told() (all []string) {
	s.t.Helper()
	for _, e := range slices.Backward(s.do("GET", "/api/v1/audit", nil).want(200).data()) {
		e, _ := e.(map[string]any)
		before, _ := json.Marshal(e["before"])
		after, _ := json.Marshal(e["after"])
		all = append(all, fmt.Sprintf("%v %v %s -> %s", e["action"], e["resourceId"], before, after))
	}
	return all
}

func TestTheAuditHasWhatEachChangeMadeOfWhat(t *testing.T) {
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

func TestWhatNotEverybodyIsShownIsNotInTheAudit(t *testing.T) {
	s := newSite(t)
	s.defining("lobby",
		fleet.Variable{Key: "KEY", Type: fleet.VariableString, Scope: fleet.ScopeGroup, Visibility: "ADMIN"},
		fleet.Variable{Key: "OPEN", Type: fleet.VariableString, Scope: fleet.ScopeGroup},
		secretVariable("DB", fleet.ScopeGroup))
	ports := []map[string]any{{"name": "admin", "protocol": "tcp", "port": 25600}}
	s.group("lobby", map[string]any{
		"templates": []string{"lobby"}, "additionalPorts": ports, "rcon": map[string]string{"port": "admin", "password": "hush-rcon-1"},
		"variableValues": map[string]string{"KEY": "hush-key-1", "DB": "hush-db-1", "OPEN": "said"},
	})
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"KEY":"hush-key-2","DB":"hush-db-2"},"rcon":{"password":"hush-rcon-2"}}`).want(200)
	s.defining("lobby") // what was hidden stays so
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
			if strings.HasPrefix(key, store.AuditLog().String()) {
				t.Errorf("%s stands in %s", text, key)
			}
		}
	}
}
