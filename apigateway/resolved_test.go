package apigateway

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestAGroupInheritsWhatItsInstancesAreMadeOf(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("n1", fleet.Resources{MemoryMiB: 1 << 16, CPU: 1600})
	s.group("base", map[string]any{
		"env": map[string]string{"A": "base", "B": "base"}, "jvmArgs": []string{"-Dx=1"}, "memoryMb": 512, "variableValues": map[string]string{"MOTD": "hi"},
		"configPatches": map[string]any{"a.yml": map[string]any{"x": 1, "y": 1}},
	})
	s.group("lobby", map[string]any{
		"parent": "base", "env": map[string]string{"B": "lobby"}, "memoryMb": 256, "configPatches": map[string]any{"a.yml": map[string]any{"x": 2}},
	})
	own := s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("env", map[string]string{"B": "lobby"}).is("jvmArgs", []string{}).is("ancestors", nil)
	whole := s.do("GET", "/api/v1/groups/lobby/resolved", nil).want(200).
		is("name", "lobby").is("parent", "base").is("ancestors", []string{"base"}).is("env", map[string]string{"A": "base", "B": "lobby"}).
		is("jvmArgs", []string{"-Dx=1"}).is("memoryMb", 256).is("variableValues", map[string]string{"MOTD": "hi"}).
		is("configPatches", map[string]any{"a.yml": map[string]any{"x": 2, "y": 1}}).is("revision", own.field("revision"))
	s.do("GET", "/api/v1/groups/base/resolved", nil).want(200).is("ancestors", []string{})
	s.do("GET", "/api/v1/groups/none/resolved", nil).want(404)

	id := s.start("lobby")
	s.do("GET", "/api/v1/services/"+string(id)+"/composition", nil).want(200).
		is("env", map[string]string{"A": "base", "B": "lobby"}).is("jvmArgs", []string{"-Dx=1"}).is("variables", map[string]string{"MOTD": "hi"}).is("memoryMb", 256)

	// A change of the parent changes neither the child nor started instances.
	s.do("PATCH", "/api/v1/groups/base", `{"env":{"A":"other"},"jvmArgs":["-Dx=2"]}`).want(200)
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("revision", own.field("revision"))
	s.do("GET", "/api/v1/services/"+string(id)+"/composition", nil).want(200).is("env", map[string]string{"A": "base", "B": "lobby"}).is("jvmArgs", []string{})
	changed := s.do("GET", "/api/v1/groups/lobby/resolved", nil).want(200).is("env", map[string]string{"A": "other", "B": "lobby"}).is("jvmArgs", []string{"-Dx=2"})
	if changed.header.Get("ETag") == whole.header.Get("ETag") {
		t.Error("the ETag is the same, and a parent is not")
	}
}

func TestAGroupInheritsSingleValuesThatNoRequestSet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/groups", `{"name":"_base","command":"run-base","memoryMb":512,"portRangeStart":31000,"portRangeEnd":31100,"stopCommand":"end","cpu":150,"maxPlayers":40}`).want(201)
	s.do("POST", "/api/v1/groups", `{"name":"lobby","parent":"_base","memoryMb":1024}`).want(201)
	resolved := func() *reply { return s.do("GET", "/api/v1/groups/lobby/resolved", nil).want(200) }
	resolved().is("command", "run-base").is("memoryMb", 1024).is("portRangeStart", 31000).is("portRangeEnd", 31100).is("stopCommand", "end").is("cpu", 150).is("maxPlayers", 40).
		is("sources.memoryMb", "lobby").is("sources.command", "_base").is("sources.portRangeEnd", "_base").is("sources.cpu", "_base").is("sources.stopSignal", nil)

	// A patch sets what it names and leaves the rest as it was.
	s.do("PATCH", "/api/v1/groups/lobby", `{"cpuReservation":2}`).want(200)
	resolved().is("cpu", 200).is("sources.cpu", "lobby").is("command", "run-base").is("stopCommand", "end")
	s.do("PATCH", "/api/v1/groups/lobby", `{"cpu":null,"memoryMb":null}`).want(200)
	resolved().is("cpu", 150).is("memoryMb", 512).is("sources.memoryMb", "_base")

	// A client that sends back what it read sets only what it changed.
	read := s.do("GET", "/api/v1/groups/lobby", nil).want(200).body.(map[string]any)
	read["shutdownGraceSeconds"] = 7
	s.do("PUT", "/api/v1/groups/lobby", read).want(200)
	resolved().is("shutdownGraceSeconds", 7).is("sources.shutdownGraceSeconds", "lobby").is("cpu", 150).is("command", "run-base").is("portRangeStart", 31000)

	// A body that a user wrote sets what it has, also to a default.
	s.do("PUT", "/api/v1/groups/lobby", `{"parent":"_base","memoryMb":1024,"stopCommand":"stop"}`).want(200)
	resolved().is("stopCommand", "stop").is("sources.stopCommand", "lobby").is("shutdownGraceSeconds", 30).is("sources.shutdownGraceSeconds", nil)

	// A configuration of Universe always sets the fields of its own dialect.
	s.do("PUT", "/api/configurations/hub", `{"parent":"_base","command":"hub","nodes":["*"]}`).want(204)
	s.do("GET", "/api/v1/groups/hub/resolved", nil).want(200).is("command", "hub").is("memoryMb", 2048).is("stopCommand", "end").is("sources.memoryMb", "hub").is("sources.stopCommand", "_base")

	// An inherited value that makes a child invalid is refused.
	s.do("PATCH", "/api/v1/groups/lobby", `{"portRangeEnd":30050,"portRangeStart":null}`).want(200)
	s.do("PATCH", "/api/v1/groups/_base", `{"portRangeStart":40000,"portRangeEnd":39000}`).want(422)
}

func TestNoGroupIsItsOwnAncestorNorHasTooMany(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("g0", nil)
	for n := 1; n <= compose.MaxAncestors; n++ {
		s.group(fmt.Sprint("g", n), map[string]any{"parent": fmt.Sprint("g", n-1)})
	}
	s.do("GET", "/api/v1/groups/g10/resolved", nil).want(200).is("ancestors.9", "g0")
	s.do("PATCH", "/api/v1/groups/g0", `{"parent":"g10"}`).want(422).naming("its own ancestor")
	s.do("PATCH", "/api/v1/groups/g0", `{"parent":"g0"}`).want(422).naming("itself")
	s.do("POST", "/api/v1/groups", `{"name":"g11","parent":"g10"}`).want(422).naming("g11 would have more than 10 ancestors")
	s.group("top", nil)
	s.do("PATCH", "/api/v1/groups/g0", `{"parent":"top"}`).want(422).naming("g10 would have more than 10 ancestors")
	s.do("DELETE", "/api/v1/groups/g10", nil).want(204)
	s.do("PATCH", "/api/v1/groups/g0", `{"parent":"top"}`).want(200)
}

func TestAValueThatItsParentsTemplatesHideIsHiddenInTheChildToo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("n1", fleet.Resources{MemoryMiB: 1 << 16, CPU: 1600})
	s.group("top", map[string]any{"command": "run", "variableValues": map[string]string{"DB_HOST": "10.0.0.7", "MOTD": "hi"}})
	s.group("common", map[string]any{"command": "run", "parent": "top"})
	s.group("lobby", map[string]any{"command": "run", "parent": "common"})
	before := s.start("lobby")
	s.defining("top", content.Variable{Key: "DB_HOST", Type: content.VariableString, Scope: content.ScopeGroup, Visibility: "ADMIN"}, content.Variable{Key: "MOTD", Type: content.VariableString, Scope: content.ScopeGroup})
	after := s.start("lobby") // none of its own templates defines any

	viewer := s.user("vera", "VIEWER")
	for _, shown := range []struct{ path, field string }{
		{"/api/v1/groups/top", "variableValues"},
		{"/api/v1/groups/lobby/resolved", "variableValues"},
		{"/api/v1/services/" + string(before) + "/composition", "variables"},
		{"/api/v1/services/" + string(after) + "/composition", "variables"},
	} {
		viewer.do("GET", shown.path, nil).want(200).is(shown.field, map[string]string{"DB_HOST": content.Hidden, "MOTD": "hi"})
		s.do("GET", shown.path, nil).want(200).is(shown.field, map[string]string{"DB_HOST": "10.0.0.7", "MOTD": "hi"})
	}
	i, _ := s.view.Snapshot().Instances.Get(after)
	if made, _ := s.view.Snapshot().Plans.Get(i.Intent.Plan); !made.Plan.Hidden["DB_HOST"].HiddenFrom(content.VisibleToAll) {
		t.Errorf("the plan, by which the instance's files are shown, hides %v", made.Plan.Hidden)
	}
	s.do("PATCH", "/api/v1/groups/lobby", map[string]any{"variableValues": map[string]string{"DB_HOST": "mine"}}).want(200)
	viewer.do("GET", "/api/v1/groups/lobby/resolved", nil).want(200).is("variableValues", map[string]string{"DB_HOST": "mine", "MOTD": "hi"}) // its own value is not secret
}
