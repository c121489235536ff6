package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestTheCompositionOfAnInstanceIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, ref := range []string{"base", "g/maps", "lobby"} {
		s.template(ref)
	}
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.group("lobby", map[string]any{
		"platform": "PAPER", "platformVersion": "1.21", "jarFile": "paper.jar", "command": "", "jvmArgs": []string{"-Xa"},
		"templates": []string{"g/maps"}, "env": map[string]string{"A": "%PORT%"}, "variableValues": map[string]string{"x": "y"},
		"configPatches": map[string]any{"a.yml": map[string]any{"b": 1}}, "fileModifications": []string{"*.txt"}, "protectedPaths": []string{"world"},
	})
	id := s.start("lobby")
	get := func() *reply {
		t.Helper()
		return s.do("GET", "/api/v1/services/"+string(id)+"/composition", nil).want(200)
	}
	layer := func(name, group string, auto bool) map[string]any {
		return map[string]any{"name": name, "group": group, "hash": "d1", "priority": 0, "auto": auto, "files": 1, "sizeBytes": 12}
	}
	before := get().is("instance", "lobby-1").is("uid", string(id)).is("group", "lobby").is("groupRevision", 1).is("port", 0).
		is("layers", []any{layer("base", "default", true), layer("lobby", "default", true), layer("maps", "g", false)}).
		is("runtime", map[string]any{"platform": "PAPER", "platformVersion": "1.21", "jarFile": "paper.jar", "url": "", "sha256": ""}).
		is("jvmArgs", []string{"-Xa"}).is("env", map[string]string{"A": "%PORT%"}).is("variables", map[string]string{"x": "y"}).
		is("secrets", []any{}).is("extensions", []any{}).is("fileModifications", []string{"*.txt"}).is("merge", configfile.DefaultMergeFiles()).
		is("configPatches", []any{map[string]any{"file": "a.yml", "path": "b", "op": "SET", "value": 1}}).
		is("override", true).is("static", false).is("protectedPaths", []string{"world"}).is("memoryMb", 1024)
	if command, _ := before.field("command").(string); !strings.HasPrefix(command, "java -Xms") {
		t.Errorf("command %q", command)
	}
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	get().is("port", 30000).is("planHash", before.field("planHash"))
	s.do("GET", "/api/v1/instances/lobby-1/composition", nil).want(200).is("uid", string(id))
	s.user("eve", "VIEWER").do("GET", "/api/v1/services/lobby-1/composition", nil).want(200)
	s.as("").do("GET", "/api/v1/services/lobby-1/composition", nil).want(401)
	s.do("GET", "/api/v1/services/nobody-1/composition", nil).want(404)
}

func TestTheSameCompositionHasTheSameHashWhateverTheGroupsRevision(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.group("lobby", map[string]any{"command": "run"})
	hashes := func() (plan, composition any) {
		t.Helper()
		r := s.do("GET", "/api/v1/services/"+string(s.start("lobby"))+"/composition", nil).want(200)
		return r.field("planHash"), r.field("compositionHash")
	}
	plan1, composition1 := hashes()
	plan2, composition2 := hashes()
	if plan1 != plan2 || composition1 != composition2 {
		t.Error("two instances of one revision differ")
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":50}`).want(200)
	plan3, composition3 := hashes()
	if plan3 == plan1 || composition3 != composition1 {
		t.Error("another revision that makes the same instance: the plan's hash is another, the composition's is not")
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"env":{"A":"1"}}`).want(200)
	if _, composition4 := hashes(); composition4 == composition1 {
		t.Error("another environment is another composition")
	}
}

func TestWhatWasHiddenWhenAnInstanceWasMadeStaysHiddenInItsComposition(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	s.defining("lobby",
		content.Variable{Key: "KEY", Type: content.VariableString, Scope: content.ScopeInstance, Visibility: "ADMIN", Default: new("theirs")},
		content.Variable{Key: "OWN", Type: content.VariableString, Scope: content.ScopeInstance, Visibility: "OPERATOR"},
		secretVariable("PW", content.ScopeInstance),
	)
	s.group("lobby", map[string]any{"command": "run", "templates": []string{"lobby"}})
	s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"variables": map[string]string{"OWN": "mine", "PW": recognisable}}).want(200)
	s.defining("lobby") // as a later version without these definitions
	viewer, operator := s.user("vera", "VIEWER"), s.user("otto", "OPERATOR")
	for who, want := range map[*site]map[string]string{
		viewer:   {"KEY": "***", "OWN": "***", "PW": "***"},
		operator: {"KEY": "***", "OWN": "mine", "PW": "***"},
		s:        {"KEY": "theirs", "OWN": "mine", "PW": "***"},
	} {
		who.do("GET", "/api/v1/services/lobby-1/composition", nil).want(200).is("variables", want).is("secrets", []string{"PW"})
	}
}

func TestWhichFilesHavePlaceholdersReplacedByDefault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/groups", map[string]any{"name": "plain", "command": "run"}).want(201).is("fileModifications", configfile.DefaultFileModifications())
	s.do("POST", "/api/v1/groups", map[string]any{"name": "none", "command": "run", "fileModifications": []string{}}).want(201).is("fileModifications", []any{})
	s.do("PATCH", "/api/v1/groups/none", map[string]any{"maxPlayers": 7}).want(200).is("fileModifications", []any{})
	s.do("PUT", "/api/configurations/uni", map[string]any{"command": "run", "nodes": []string{"*"}}).want(204)
	s.do("GET", "/api/v1/groups/uni", nil).want(200).is("fileModifications", []any{})
	s.do("PATCH", "/api/v1/groups/uni", map[string]any{"maxPlayers": 7}).want(200).is("fileModifications", []any{})
}

func TestACustomImageInTheEnvironmentIsEnoughForAConfigurationInDocker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	body := map[string]any{"runtime": "docker", "command": "run", "nodes": []string{"*"}}
	s.do("PUT", "/api/configurations/uni", body).want(422)
	body["environmentVariables"] = map[string]string{"CUSTOM_IMAGE": "games/lobby:1"}
	s.do("PUT", "/api/configurations/uni", body).want(204)
	s.do("GET", "/api/configurations/uni", nil).want(200).is("environmentVariables", body["environmentVariables"])
}
