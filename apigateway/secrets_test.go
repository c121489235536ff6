package apigateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

const recognisable = "xK9-recognisable-Value"

// defining publishes a template that defines variables.
func (s *site) defining(ref string, all ...content.Variable) {
	s.t.Helper()
	t := content.ParseTemplateRef(ref)
	if _, ok := s.view.Snapshot().TemplateHeads.Get(t.String()); !ok {
		s.template(ref)
	}
	h, err := store.Get(s.t.Context(), s.store, keys.TemplateHead(t))
	if err != nil {
		s.t.Fatal(err)
	}
	h.Variables = all
	s.commit(store.Replace(keys.TemplateHead(t), h, h.ModRev))
}

func secretVariable(key string, scope content.VariableScope) content.Variable {
	return content.Variable{Key: key, Type: content.VariableSecret, Scope: scope}
}

// text returns the body as text.
func text(r *reply) string {
	b, err := json.Marshal(r.body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// nowhere fails if a text is in etcd or its history.
func (s *site) nowhere(text string) {
	s.t.Helper()
	if keys := storetest.Holding(s.t, s.etcd.Endpoint, text); len(keys) > 0 {
		s.t.Errorf("a value stands in clear in %v", keys)
	}
}

func TestSecretsAreStoredAndNeverShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/secrets/db"
	first := s.do("PUT", path, map[string]any{"value": recognisable, "values": map[string]string{"user": recognisable}}).want(201).
		is("name", "db").is("keys", []string{"", "user"}).is("version", 1).is("updatedBy", "admin")
	s.do("PUT", path, map[string]any{"value": recognisable, "values": map[string]string{"user": recognisable}}).want(200).is("version", 1)
	s.do("PUT", path+"?dryRun=true", map[string]any{"value": "x"}).want(200).is("dryRun", true).is("created", false).is("secret.version", 2)
	s.do("PUT", path, map[string]any{"value": "x"}, "If-Match", `"1"`).want(412)
	s.do("PUT", path, map[string]any{"value": recognisable + "2"}, "If-Match", first.header.Get("ETag")).want(200).is("version", 2).is("keys", []string{""})
	s.do("GET", path, nil).want(200).is("version", 2).is("usedBy", []any{})
	if all := s.do("GET", "/api/v1/secrets", nil).want(200); len(all.data()) != 1 || strings.Contains(text(all), recognisable) {
		t.Errorf("the list is %v", all.body)
	}
	for name, body := range map[string]any{
		"a..b": map[string]any{"value": "x"}, "empty": map[string]any{}, "hidden": map[string]any{"value": "***"},
	} {
		s.do("PUT", "/api/v1/secrets/"+name, body).want(422)
	}
	s.do("PUT", path, map[string]any{"name": "other", "value": "x"}).want(422).naming("name")
	s.do("GET", "/api/v1/secrets/none", nil).want(404)
	s.do("DELETE", "/api/v1/secrets/none", nil).want(404)
	for _, role := range []string{"VIEWER", "OPERATOR"} {
		other := s.user("eve"+strings.ToLower(role), role)
		other.do("GET", "/api/v1/secrets", nil).want(403)
		other.do("PUT", path, map[string]any{"value": "x"}).want(403)
		other.do("DELETE", path, nil).want(403)
	}

	s.defining("lobby", secretVariable("DB", content.ScopeGroup))
	s.group("lobby", map[string]any{"templates": []string{"lobby"}, "variableValues": map[string]string{"DB": "secret:db"}})
	s.do("GET", path, nil).want(200).is("usedBy", []string{"group lobby"})
	s.do("DELETE", path, nil).want(409).naming("group lobby")
	s.do("PUT", path, map[string]any{"values": map[string]string{"user": "x"}}).want(409).naming("secret:db is used by group lobby")
	s.do("PUT", path, map[string]any{"value": "y", "values": map[string]string{"user": "x"}}).want(200)
	s.do("PUT", path, map[string]any{"value": "y"}).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"DB":null}}`).want(200)
	s.do("DELETE", path+"?dryRun=true", nil).want(200)
	s.do("DELETE", path, nil).want(204)
	s.do("GET", path, nil).want(404)
	if log := s.do("GET", "/api/v1/audit", nil).want(200); strings.Contains(text(log), recognisable) || !strings.Contains(text(log), "secret.delete") {
		t.Errorf("the audit has %v", log.body)
	}
	s.nowhere(recognisable)
}

func TestASecretIsForTheGroupsOfItsSelector(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/secrets/db"
	s.defining("base", secretVariable("DB", content.ScopeGroup), secretVariable("ONE", content.ScopeInstance))
	s.do("PUT", path, `{"value":"`+recognisable+`","selector":"game=skywars"}`).want(201)
	s.do("PUT", path, `{"selector":"game in ("}`).want(422).naming("selector")
	s.do("PUT", path, `{"selector":"game=bedwars"}`).want(200).is("selector", "game=bedwars").is("version", 2).is("keys", []string{""})
	group := func(labels, values string) string {
		return `{"name":"arena","command":"run","templates":["base"],"labels":` + labels + `,"variableValues":` + values + `}`
	}
	s.do("POST", "/api/v1/groups", group(`{"game":"skywars"}`, `{"DB":"secret:db"}`)).want(422).naming("variableValues.DB cannot be used: secret db is for groups with the labels game=bedwars")
	s.do("POST", "/api/v1/groups", group(`{"game":"skywars"}`, `{}`)).want(201)
	s.do("POST", "/api/v1/groups/arena/start", `{"count":1,"variables":{"ONE":"secret:db"}}`).want(422).naming("secret db is for groups")
	s.do("PATCH", "/api/v1/groups/arena", `{"labels":{"game":"bedwars"},"variableValues":{"DB":"secret:db"}}`).want(200)
	s.do("PATCH", "/api/v1/groups/arena", `{"labels":{"game":"skywars"}}`).want(422).naming("secret db is for groups")
	s.do("PUT", path, `{"selector":"game=skywars"}`).want(409).naming("used by groups whose labels do not match game=skywars: arena")
	s.do("PUT", path+"?dryRun=true", `{"selector":"game=skywars"}`).want(409)
	// So are groups that get it from a parent or a template.
	s.do("POST", "/api/v1/groups", `{"name":"duels","parent":"arena","labels":{"game":"duels"}}`).want(422).naming("secret db is for groups")
	s.do("POST", "/api/v1/groups", `{"name":"duels","parent":"arena","labels":{"game":"bedwars","kind":"duels"}}`).want(201)
	s.do("PUT", path, `{"selector":"game=bedwars, !kind"}`).want(409).naming(": duels;")
	s.do("DELETE", "/api/v1/groups/duels", nil).want(204)
	def := secretVariable("DEFAULT", content.ScopeGroup)
	def.Default = new("secret:db")
	s.defining("other", def)
	s.do("POST", "/api/v1/groups", `{"name":"hub","command":"run","templates":["other"]}`).want(422).naming("secret db is for groups")
	// A write of values keeps the selector, and one of the selector keeps the values.
	s.do("PUT", path, `{"value":"other"}`).want(200).is("selector", "game=bedwars").is("version", 3)
	s.do("PUT", path, `{"selector":"game in (bedwars, duels)"}`).want(200).is("version", 4)
	s.do("PUT", path, `{"value":"other","selector":"game in (bedwars, duels)"}`).want(200).is("version", 4)
	s.do("GET", path, nil).want(200).is("selector", "game in (bedwars, duels)")
}

func TestAListOfSecretsReadsNoMoreThanItsPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{"a", "b", "c"} {
		s.do("PUT", "/api/v1/secrets/"+name, map[string]any{"value": "x"}).want(201)
	}
	if _, err := s.etcd.Raw().Put(t.Context(), keys.Secret("d").String(), "what nobody can read"); err != nil {
		t.Fatal(err)
	}
	for query, names := range map[string]string{"pageSize=2": "a b", "pageSize=1&page=3": "c", "page=3": "", "page=999999999999999999": "", "pageSize=3&page=-1": "a b c"} {
		r := s.do("GET", "/api/v1/secrets?"+query, nil).want(200).is("total", 4)
		var got []string
		for _, one := range r.data() {
			m, _ := one.(map[string]any)
			got = append(got, fmt.Sprint(m["name"]))
		}
		if strings.Join(got, " ") != names {
			t.Errorf("%s: %v", query, got)
		}
	}
	s.do("GET", "/api/v1/secrets?page=x", nil).want(400)
}

func TestAPlainValueOfASecretIsSealedOnItsWayIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	free := content.Variable{Key: "FREE", Type: content.VariableString, Scope: content.ScopeGroup}
	s.defining("lobby", secretVariable("DB", content.ScopeGroup), secretVariable("ONE", content.ScopeInstance), free)
	body := func(value string) map[string]any {
		return map[string]any{"command": "run", "templates": []string{"lobby"}, "variableValues": map[string]string{"DB": value, "FREE": "x"}}
	}
	stored := func() fleet.Group {
		t.Helper()
		g, err := store.Get(t.Context(), s.store, keys.Group("lobby"))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	masked := map[string]string{"DB": "***", "FREE": "x"}
	s.group("lobby", body(recognisable)).is("variableValues", masked)
	first := stored()
	if !content.IsSealed(first.Spec.Variables["DB"]) {
		t.Fatalf("stored as %q", first.Spec.Variables["DB"])
	}
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("variableValues", masked)
	s.do("GET", "/api/configurations/lobby", nil).want(200).is("properties", masked)
	for _, path := range []string{"/api/v1/groups", "/api/configurations"} {
		if r := s.do("GET", path, nil).want(200); strings.Contains(text(r), "sealed:") || strings.Contains(text(r), recognisable) {
			t.Errorf("%s has %v", path, r.body)
		}
	}

	// A value that was read can be written back through both APIs without a change.
	s.do("PUT", "/api/v1/groups/lobby", body("***")).want(200)
	s.do("PUT", "/api/v1/groups/lobby", body(recognisable)).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"DB":"***"}}`).want(200)
	if got := stored(); got.Revision != first.Revision || got.Spec.Variables["DB"] != first.Spec.Variables["DB"] {
		t.Errorf("revision %d of %q", got.Revision, got.Spec.Variables["DB"])
	}
	shown := s.do("GET", "/api/configurations/lobby", nil).want(200)
	s.do("PUT", "/api/configurations/lobby", text(shown)).want(204)
	if got := stored(); got.Spec.Variables["DB"] != first.Spec.Variables["DB"] {
		t.Errorf("written back it became %q", got.Spec.Variables["DB"])
	}
	dry := s.do("PUT", "/api/v1/groups/lobby?dryRun=true", body("another"+recognisable)).want(200)
	if text := text(dry); !strings.Contains(text, "variableValues") || strings.Contains(text, recognisable) || strings.Contains(text, "sealed:") {
		t.Errorf("the difference is %s", text)
	}

	// An instance's own value is sealed too, and the composition shows neither.
	s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"ONE": recognisable}}).want(200)
	s.do("GET", "/api/v1/services/lobby-1/composition", nil).want(200).is("secrets", []string{"DB", "ONE"}).
		is("variables", map[string]string{"DB": "***", "ONE": "***", "FREE": "x"})
	s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"DB": "x"}}).want(422).naming("variables.DB")
	s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"ONE": "file:../x"}}).want(422).naming("variables.ONE")

	for _, broken := range []string{
		"secret:", "secret:../x", "secret:none", "file:../x", "file:/x", "env:", "env:A B", first.Spec.Variables["DB"] + "x", "sealed:eA", "",
	} {
		s.do("PUT", "/api/v1/groups/lobby", body(broken)).want(422).naming("variableValues.DB")
	}
	s.do("POST", "/api/v1/groups", map[string]any{
		"name": "copy", "command": "run", "templates": []string{"lobby"}, "variableValues": map[string]string{"DB": first.Spec.Variables["DB"]},
	}).want(422).naming("variableValues.DB")
	s.do("POST", "/api/v1/groups", map[string]any{
		"name": "copy", "command": "run", "templates": []string{"lobby"}, "variableValues": map[string]string{"DB": "***"},
	}).want(422).naming("variableValues.DB")

	// Without the template the value stays hidden.
	s.do("PATCH", "/api/v1/groups/lobby", `{"templates":[]}`).want(200).is("variableValues", masked)
	s.do("GET", "/api/configurations/lobby", nil).want(200).is("properties", masked)
	s.nowhere(recognisable)
}

func TestAValueOfWhatWasASecretAndIsDefinedNoMoreIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.defining("base/db", secretVariable("DB", content.ScopeInstance))
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": "x"}).want(201)
	s.group("lobby", map[string]any{"command": "run", "templates": []string{"base/db"}, "variableValues": map[string]string{"DB": recognisable}})
	s.do("PATCH", "/api/v1/groups/lobby", `{"templates":[]}`).want(200)
	const next = "define it in a template, or remove the value first"
	for _, value := range []string{recognisable, "another", "secret:db"} { // the stored value cannot be guessed this way either
		s.do("PATCH", "/api/v1/groups/lobby", map[string]any{"variableValues": map[string]string{"DB": value}}).want(422).naming("variableValues.DB").naming(next)
		s.do("PUT", "/api/configurations/lobby", map[string]any{"command": "run", "properties": map[string]string{"DB": value}}).want(422).naming(next)
		s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"DB": value}}).want(422).naming("variables.DB").naming(next)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":7,"variableValues":{"DB":"***"}}`).want(200)
	s.do("POST", "/api/v1/groups/lobby/start", nil).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"DB":null}}`).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"DB":"free"}}`).want(200).is("variableValues", map[string]string{"DB": "free"})
	s.nowhere(recognisable)
}

func TestValuesAreHeldToWhatTemplatesDefine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	least := int64(3)
	s.defining("lobby",
		content.Variable{Key: "COUNT", Type: content.VariableInt, Scope: content.ScopeGroup, Required: true, Validation: content.VariableRule{Min: &least}},
		content.Variable{Key: "FIXED", Type: content.VariableString, Scope: content.ScopeTemplate, Default: new("x")},
	)
	body := func(values map[string]string) map[string]any {
		return map[string]any{"command": "run", "templates": []string{"lobby"}, "variableValues": values}
	}
	for field, values := range map[string]map[string]string{
		"COUNT":                 {},
		"COUNT must be a whole": {"COUNT": "many"},
		"at least 3":            {"COUNT": "2"},
		"FIXED":                 {"COUNT": "3", "FIXED": "y"},
	} {
		s.do("PUT", "/api/v1/groups/lobby", body(values)).want(422).naming(field)
		s.do("PUT", "/api/configurations/lobby", map[string]any{
			"command": "run", "properties": values,
			"templateInstallationConfig": map[string]any{"allOf": []map[string]any{{"name": "lobby", "group": "default"}}},
		}).want(422)
	}
	s.do("PUT", "/api/v1/groups/lobby", body(map[string]string{"COUNT": "3"})).want(201)
	s.defining("lobby", content.Variable{Key: "NEW", Type: content.VariableString, Scope: content.ScopeGroup, Required: true})
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":7}`).want(200) // new requirements of the template are checked at the start of instances
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"X":"y"}}`).want(422).naming("NEW")
}

func TestAValueThatNoTemplateDefinesIsRefusedWhereOneDefinesAny(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.template("lobby")
	body := func(values map[string]string) map[string]any {
		return map[string]any{"command": "run", "templates": []string{"lobby"}, "variableValues": values}
	}
	s.do("PUT", "/api/v1/groups/lobby", body(map[string]string{"free": "1"})).want(201)
	s.defining("lobby", content.Variable{Key: "slots", Type: content.VariableInt, Scope: content.ScopeInstance})
	s.do("PUT", "/api/v1/groups/lobby", body(map[string]string{"free": "2", "slots": "1", "PORT": "7"})).want(200)
	s.do("PUT", "/api/v1/groups/lobby", body(map[string]string{"slotss": "1"})).want(422).naming("variableValues.slotss").naming("which define slots")
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"slotss":"1"}}`).want(422).naming("variableValues.slotss")
	s.do("POST", "/api/v1/groups", map[string]any{"name": "other", "command": "run", "templates": []string{"lobby"}, "variableValues": map[string]string{"slotss": "1"}}).want(422).naming("slotss")
	s.do("POST", "/api/v1/groups/lobby/start", `{"variables":{"slotss":"1"}}`).want(422).naming("variables.slotss")
	s.do("POST", "/api/v1/groups/lobby/start", `{"variables":{"slots":"1","free":"3"}}`).want(422).naming("variables.free")
	s.do("POST", "/api/v1/groups/lobby/start", `{"variables":{"slots":"1"}}`).want(200)
	s.do("PUT", "/api/configurations/uni", map[string]any{
		"command": "run", "properties": map[string]string{"slotss": "1"},
		"templateInstallationConfig": map[string]any{"allOf": []map[string]any{{"name": "lobby", "group": "default"}}},
	}).want(204)
	s.do("PATCH", "/api/v1/groups/uni", `{"maxInstances":7,"variableValues":{"slotss":"2"}}`).want(200)
}

func TestValuesForAdministratorsAreHiddenFromOthersAndKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.defining("lobby", content.Variable{Key: "KEY", Type: content.VariableString, Scope: content.ScopeGroup, Visibility: "ADMIN"})
	s.group("lobby", map[string]any{"command": "run", "templates": []string{"lobby"}, "variableValues": map[string]string{"KEY": "mine"}}).
		is("variableValues", map[string]string{"KEY": "mine"})
	operator := s.user("otto", "OPERATOR")
	masked := map[string]string{"KEY": "***"}
	operator.do("GET", "/api/v1/groups/lobby", nil).want(200).is("variableValues", masked)
	operator.do("GET", "/api/configurations/lobby", nil).want(200).is("properties", masked)
	for n, values := range []map[string]string{{"KEY": "***"}, {}} {
		operator.do("PUT", "/api/v1/groups/lobby", map[string]any{"command": fmt.Sprint("run ", n), "templates": []string{"lobby"}, "variableValues": values}).want(200)
		s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("variableValues", map[string]string{"KEY": "mine"})
	}
	for _, tried := range []string{"other", "mine"} {
		operator.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"KEY":"`+tried+`"}}`).want(403).naming("KEY")
	}
	operator.do("PATCH", "/api/v1/groups/lobby", `{"templates":[]}`).want(200).is("variableValues", masked)
	operator.do("GET", "/api/v1/groups/lobby", nil).want(200).is("variableValues", masked)
	s.user("vera", "VIEWER").do("GET", "/api/v1/groups", nil).want(200)
}

func TestARepositoryRefersToSecretsAndHasNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	s.defining("lobby", secretVariable("DB", content.ScopeGroup))
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": "x1y2"}).want(201)
	s.declare("repo", "lobby", `{"command":"run","templates":["lobby"],"variableValues":{"DB":"hunter2"}}`)
	if st := s.stands("repo", "lobby", compose.DeclaredFailed); !strings.Contains(st.Message, "variableValues.DB") || !strings.Contains(st.Message, "a repository must not contain its value") || strings.Contains(st.Message, "hunter2") {
		t.Errorf("%+v", st)
	}
	s.declare("repo", "lobby", `{"command":"run","templates":["lobby"],"variableValues":{"DB":"secret:db"}}`)
	s.stands("repo", "lobby", compose.DeclaredInSync)
	s.do("GET", "/api/v1/secrets/db", nil).want(200).is("usedBy", []string{"group lobby"})
}

func TestOnlyWhoMayChangeGroupsRefersToSecretsAtAStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.defining("lobby", secretVariable("ONE", content.ScopeInstance), content.Variable{Key: "TEXT", Type: content.VariableString, Scope: content.ScopeInstance})
	s.group("lobby", map[string]any{"command": "run", "templates": []string{"lobby"}})
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	start := func(values map[string]string) error {
		_, _, err := s.gateway.operate.StartInstances(t.Context(), txn.Actor{User: "sam"}, instanceops.StartRequest{Group: "lobby", Count: 1, Values: values})
		return err
	}
	for _, ref := range []string{"secret:db", "secret:none", "secret:db#none", "file:a", "env:A", "file:../x"} { // no response reveals whether the secret exists
		err := start(map[string]string{"ONE": ref})
		if !errs.Is(err, errs.Denied) || errs.FieldOf(err) != "variables.ONE" {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := start(map[string]string{"ONE": recognisable, "TEXT": "secret:db"}); err != nil {
		t.Errorf("values of their own: %v", err)
	}
	s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"ONE": "secret:db"}}).want(200)
	s.user("otto", "OPERATOR").do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"ONE": "secret:db"}}).want(200)
	s.nowhere(recognisable)
}
