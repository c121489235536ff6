package apigateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/client"
)

func TestAGroupOfANameAloneHasTheDefaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/groups", `{"name":"lobby"}`).want(201)
	for path, want := range map[string]any{
		"name": "lobby", "platform": "PAPER", "jarFile": "server.jar", "scalingMode": "DYNAMIC", "minInstances": 0, "maxInstances": 10,
		"maxPlayers": 100, "scaleUpThreshold": 0.8, "scaleDownAfterSeconds": 300, "scaleCooldownSeconds": 60, "scaleBufferSlots": 0, "scaleBufferPercent": 0,
		"portRangeStart": 30000, "portRangeEnd": 30100, "startupTimeoutSeconds": 120, "shutdownGraceSeconds": 30,
		"maxLifetimeSeconds": 0, "static": false, "memoryMb": 1024, "cpuReservation": 0, "diskReservationMb": 0,
		"updateStrategy": "ROLLING", "motdMode": "STATIC", "motdIntervalSeconds": 30, "templates": []string{}, "env": map[string]any{},
		"nodePreferences": []any{}, "spreadMaxSkew": 0, "maxPerNode": 0, "exclusiveNode": false, "placementProfile": "balanced",
		"placementWeights": map[string]any{}, "labels": map[string]any{}, "preempts": false, "rebalance": false, "message": "",
		"quota": map[string]any{"memoryMb": 0, "cpu": 0, "instances": 0}, "reserved": map[string]any{"memoryMb": 0, "cpu": 0, "instances": 0},
		"runtime": "process", "nodes": []string{"*"}, "stopCommand": "stop", "stopSignal": "TERM", "readiness": map[string]any{"type": "none"}, "liveness": map[string]any{"type": "none"},
		"limits": map[string]any{"processes": 0, "ioWeight": 0, "diskMb": 0, "logMb": 0}, "rcon": map[string]any{"port": "", "password": ""},
		"confine":   map[string]any{"user": "", "noNewPrivileges": false, "privateTmp": false, "readOnlyTemplates": false},
		"container": map[string]any{"image": "", "user": "", "network": "", "volumes": []string{}, "directory": ""},
		"onCrash":   "replace", "maintenance": false, "runningInstances": 0, "totalPlayers": 0, "revision": 1, "paused": false,
		"runtimeTarget": map[string]any{"platform": "PAPER", "platformVersion": "", "family": "SERVER"}, "warmPoolMinPrepared": 0,
	} {
		r.is(path, want)
	}
	if r.header.Get("Location") != "/api/v1/groups/lobby" || r.header.Get("ETag") == "" {
		t.Errorf("headers %v", r.header)
	}
	if got := s.do("GET", "/api/v1/groups/lobby", nil).want(200); got.raw != r.raw || got.header.Get("ETag") != r.header.Get("ETag") {
		t.Errorf("read %s\nmade %s", got.raw, r.raw)
	}
}

func TestWhatTheStockClientSendsIsAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("base-lobby")
	r := s.do("POST", "/api/v1/groups", `{"name":"lobby","platform":"paper","platformVersion":"1.21","jarFile":"server.jar","templates":["base-lobby"],
		"scalingMode":"DYNAMIC","minInstances":1,"maxInstances":3,"memoryMb":512,"routing":"LEAST","portRangeStart":30000,"portRangeEnd":30010}`).want(201)
	r.is("platform", "PAPER").is("templates", []string{"base-lobby"}).is("routing", nil)
	s.do("PATCH", "/api/v1/groups/lobby", `{"minInstances":5,"maxInstances":5}`).want(200).is("minInstances", 5).is("maxInstances", 5)
	s.do("PATCH", "/api/v1/groups/lobby", `{"maintenance":true}`).want(200).is("maintenance", true).is("minInstances", 5)
	s.do("PATCH", "/api/v1/groups/lobby", `{"routing":{"a":1},"predictiveScaling":true,"scaleUpMargin":1,"burstCeiling":2,"drainOnShutdown":false}`).want(200)
	list := s.do("GET", "/api/v1/groups", nil).want(200).is("total", 1).is("page", 1).is("pageSize", 500)
	if len(list.data()) != 1 {
		t.Errorf("listed %s", list.raw)
	}
}

// full sets every field to a value other than its default.
const full = `{"name":"full","parent":"base","platform":"VELOCITY","platformVersion":"3","jarFile":"x.jar","jvmArgs":["-Da=b"],"command":"./run %PORT%",
	"runtime":"tmux","scalingMode":"STATIC","minInstances":2,"maxInstances":0,"scaleUpThreshold":0.5,"scaleDownAfterSeconds":1,"scaleCooldownSeconds":2,
	"scalingCombine":"chain","sleepAfterEmptySeconds":60,"wakeOn":"connect","sleepMotd":"zzz","maxPlayers":7,"fallbackGroup":"base","defaultGroup":true,"bedrockProxyGroup":"base","memoryMb":99,"cpu":150,
	"cpuReservation":1.5,"cpuLimit":200,"diskReservationMb":5,"portRangeStart":1,"portRangeEnd":65535,
	"additionalPorts":[{"name":"query","protocol":"udp","start":5000,"end":5010},{"name":"rcon","protocol":"tcp","start":5020,"end":5029}],"hostAddress":"h.example","nodes":["node-1","node-2"],
	"nodeAffinity":["ssd"],"nodeAntiAffinity":["old=1"],"spreadConstraint":"rack",
	"nodePreferences":[{"label":"ssd","weight":50},{"label":"rack in (a, b)","weight":-100}],"spreadMaxSkew":2,"maxPerNode":3,"exclusiveNode":true,
	"placementProfile":"pack","placementWeights":{"warm":0.5,"packed":0},"labels":{"tenant":"acme"},"quota":{"memoryMb":4096,"cpu":400,"instances":4},
	"reserved":{"memoryMb":1024,"cpu":100,"instances":1},"preempts":true,"rebalance":true,"templates":["a","g/b"],
	"templateInstallationConfig":{"allOf":[{"name":"a","group":"default","storage":"local","priority":3},{"name":"b","group":"g","storage":"s3","priority":1}],
	"allInGroups":["g"],"oneOf":[{"name":"a","group":"default","storage":"local","priority":0}],"oneInGroups":["g"],"onTemplatePasteOverridePresentFiles":false},
	"fileModifications":["*.yml"],"env":{"A":"1","B":""},"variableValues":{"x":"y"},"instanceGroups":["q"],"static":true,
	"staticInstanceNames":["one","two"],"protectedPaths":["world"],"stopCommand":"end","shutdownGraceSeconds":0,"stopSignal":"INT",
	"readiness":{"type":"udp","port":"query","send":"\\x01","pattern":"^ok"},"liveness":{"type":"http","port":"rcon","path":"/up","status":204,
	"intervalSeconds":5,"timeoutSeconds":1.5,"failures":4,"successes":2,"then":"report"},"limits":{"processes":50,"ioWeight":20,"diskMb":600,"logMb":7},
	"confine":{"user":"nobody","noNewPrivileges":true,"privateTmp":true,"readOnlyTemplates":true},
	"container":{"image":"arena:1","user":"1000:1000","network":"games","volumes":["/srv/maps:/maps:ro"],"directory":"/srv"},
	"rcon":{"port":"rcon","password":"%PASSWORD%"},"startupTimeoutSeconds":0,"maxLifetimeSeconds":60,"onCrash":"restart","onNodeLoss":"stop","onNodeReturn":"keepReplacement","maintenance":true,
	"maintenanceMessage":"soon","maintenanceBypass":["ann"],"motds":["hi"],"motdMode":"RANDOM","motdIntervalSeconds":5,"dependsOn":["base"],
	"startupWeight":3,"priority":4,"updateStrategy":"CANARY","attachedModules":["m"],"enabledModules":["n"],"disabledModules":["o"],
	"attachedExtensions":["p"],"enabledExtensions":["q"],"disabledExtensions":["r"],"configPatches":{"f.yml":{"a.b":12345}},"autoLayers":false,"mergeFiles":["*.yml"],
	"configRules":[{"file":"g.conf","path":"x","op":"REGEX","value":"y"},{"file":"h.json","path":"a[0]","op":"REPLACE","value":{"z":12345678901234567890}}]}`

func fullGroup(s *site) *reply {
	s.t.Helper()
	s.template("a")
	s.do("PUT", "/api/v1/template-sources/s3", `{"kind":"s3","url":"https://s3.example","bucket":"templates"}`).want(201)
	s.templateFrom("s3", "g/b")
	s.group("base", nil)
	return s.do("POST", "/api/v1/groups", full).want(201)
}

func TestEveryFieldComesBackAsItWasSent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := fullGroup(s)
	var sent, got map[string]any
	if err := json.Unmarshal([]byte(full), &sent); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.raw), &got); err != nil {
		t.Fatal(err)
	}
	for k, want := range sent {
		if diff := cmp.Diff(want, got[k]); diff != "" {
			t.Errorf("%s: %s", k, diff)
		}
	}
	for _, k := range []string{"runningInstances", "totalPlayers", "runtimeTarget", "revision", "createdAt", "updatedAt", "paused", "crashLoop", "scaling", "held", "message"} {
		if _, ok := got[k]; !ok {
			t.Errorf("%s is missing", k)
		}
		delete(got, k)
	}
	for _, k := range []string{"scaleBufferSlots", "scaleBufferPercent", "scalingPolicies", "warmPoolMinPrepared"} { // not in a static group: see TestABufferOfSlots, TestScalingPoliciesAreStored and TestAWarmInstanceTakesNoPlayers
		delete(got, k)
	}
	if len(got) != len(sent) {
		t.Errorf("%d fields can be written and %d are set by this test", len(got), len(sent))
	}
}

func TestWritingBackWhatWasReadChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	read := fullGroup(s)
	before := s.revision()
	s.do("PUT", "/api/v1/groups/full", read.raw).want(200).is("revision", 1)
	s.do("PATCH", "/api/v1/groups/full", read.raw).want(200).is("revision", 1)
	s.do("PATCH", "/api/v1/groups/full", `{}`).want(200)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("something was written: %v", keys)
	}
}

func TestARemotePasswordIsShownToWhoMaySetItAndToNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path, secret = "/api/v1/groups/lobby", "open-sesame"
	ports := []map[string]any{{"name": "admin", "protocol": "tcp", "port": 25600}}
	s.group("lobby", map[string]any{"additionalPorts": ports, "rcon": map[string]string{"port": "admin", "password": secret}})
	viewer := s.user("wanda", "VIEWER")
	s.do("GET", path, nil).want(200).is("rcon.password", secret)
	read := viewer.do("GET", path, nil).want(200).is("rcon.password", "***").is("rcon.port", "admin")
	told := []*reply{
		read, viewer.do("GET", "/api/v1/groups", nil).want(200), viewer.do("GET", "/api/configurations", nil).want(200),
		s.do("PATCH", path+"?dryRun=true", `{"rcon":{"password":"another"}}`).want(200).is("action", "update"),
		s.do("PATCH", path+"?dryRun=true", `{"rcon":null,"additionalPorts":[]}`).want(200).is("action", "update"),
		s.do("PUT", "/api/v1/groups/other?dryRun=true", map[string]any{"additionalPorts": ports, "rcon": map[string]string{"port": "admin", "password": secret}}).want(200),
		s.do("GET", "/api/v1/audit", nil).want(200),
	}
	for _, r := range told {
		if strings.Contains(r.raw, secret) || strings.Contains(r.raw, "another") {
			t.Errorf("the password is told: %s", r.raw)
		}
	}
	before := s.revision()
	s.do("PUT", path, read.raw).want(200).is("rcon.password", secret).is("revision", 1)
	s.do("PATCH", path, `{"rcon":{"password":"***"}}`).want(200).is("rcon.password", secret)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("something was written: %v", keys)
	}
	s.do("PATCH", path, `{"memoryMb":77,"rcon":{"port":"ADMIN","password":"***"}}`).want(200).is("rcon.password", secret).is("revision", 2)
	s.do("PUT", "/api/configurations/lobby", map[string]any{
		"additionalPorts": ports, "rcon": map[string]string{"port": "admin", "password": "***"},
	}).want(204)
	s.do("GET", path, nil).want(200).is("rcon.password", secret)
	s.do("PUT", "/api/v1/groups/other", map[string]any{"additionalPorts": ports, "rcon": map[string]string{"port": "admin", "password": "***"}}).want(422).naming("rcon.password")
	s.do("PATCH", path, `{"rcon":{"password":"another"}}`).want(200).is("rcon.password", "another")
}

func TestAPatchChangesWhatItSaysAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fullGroup(s)
	patch := func(body string) *reply {
		t.Helper()
		return s.do("PATCH", "/api/v1/groups/full", body).want(200)
	}
	patch(`{"env":{"B":"2","C":"3"}}`).is("env", map[string]string{"A": "1", "B": "2", "C": "3"}).is("memoryMb", 99).is("revision", 2)
	patch(`{"env":{"A":null}}`).is("env", map[string]string{"B": "2", "C": "3"})
	patch(`{"variableValues":{"z":"1"}}`).is("variableValues", map[string]string{"x": "y", "z": "1"})
	patch(`{"configPatches":{"f.yml":{"c":1}}}`).is("configPatches", map[string]any{"f.yml": map[string]any{"a.b": 12345, "c": 1}})
	patch(`{"configPatches":{"f.yml":null}}`).is("configPatches", map[string]any{})
	patch(`{"parent":null,"jvmArgs":["-Xx"]}`).is("parent", "").is("jvmArgs", []string{"-Xx"})
	patch(`{"maxPlayers":null}`).is("maxPlayers", 100)
	patch(`{"cpuReservation":0.25}`).is("cpu", 25)
	s.do("PATCH", "/api/v1/groups/full", `{"CPU":40}`).want(400).naming("cpu")
	patch(`{"cpu":40}`).is("cpu", 40).is("cpuReservation", 0.4)
	patch(`{"templates":["g/b"]}`).is("templates", []string{"g/b"}).is("templateInstallationConfig.allInGroups", []string{"g"})
	patch(`{"templateInstallationConfig":{"allOf":[{"name":"a"}]}}`).is("templates", []string{"a"}).is("templateInstallationConfig.allInGroups", []string{"g"})
	patch(`{"quota":{"memoryMb":null,"cpu":500}}`).is("quota", map[string]any{"memoryMb": 0, "cpu": 500, "instances": 4})
	patch(`{"quota":null}`).is("quota", map[string]any{"memoryMb": 0, "cpu": 0, "instances": 0}).is("reserved.instances", 1)
	patch(`{"liveness":{"failures":null,"then":"restart"}}`).is("liveness.failures", nil).is("liveness.then", "restart").is("liveness.path", "/up")
	patch(`{"liveness":null}`).is("liveness", map[string]string{"type": "none"}).is("readiness.port", "query")
	patch(`{"readiness":null,"rcon":null}`).is("readiness", map[string]string{"type": "none"}).is("rcon", map[string]string{"port": "", "password": ""})
	patch(`{"limits":{"diskMb":5},"confine":{"user":null,"readOnlyTemplates":false},"container":{"volumes":[]}}`).is("limits.diskMb", 5).is("limits.processes", 50).
		is("confine.user", "").is("confine.privateTmp", true).is("container.volumes", []string{}).is("container.image", "arena:1")
	patch(`{"labels":{"tenant":null,"tier":"1"}}`).is("labels", map[string]string{"tier": "1"})
	patch(`{"placementWeights":{"warm":null,"own":2}}`).is("placementWeights", map[string]any{"own": 2, "packed": 0})
	patch(`{"placementProfile":null,"nodePreferences":[{"label":"!old","weight":1}]}`).is("placementProfile", "balanced").
		is("nodePreferences", []map[string]any{{"label": "!old", "weight": 1}}).is("spreadMaxSkew", 2)
	patch(`{"nodes":["*"]}`).is("nodes", []string{"*"}).is("command", "./run %PORT%")
}

func TestPutReplacesOrCreates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/groups/lobby", `{"memoryMb":7}`).want(201).is("memoryMb", 7)
	s.do("PUT", "/api/v1/groups/lobby", `{"name":"lobby","minInstances":1}`).want(200).is("memoryMb", 1024).is("minInstances", 1).is("revision", 2)
	s.do("PUT", "/api/v1/groups/lobby", `{"name":"other"}`).want(422).naming("name")
	s.do("PUT", "/api/v1/groups/Bad%20Name", `{}`).want(422).naming("name")
	s.do("PATCH", "/api/v1/groups/nope", `{}`).want(404)
	s.do("DELETE", "/api/v1/groups/nope", nil).want(404)
	s.do("GET", "/api/v1/groups/nope", nil).want(404)
	s.do("POST", "/api/v1/groups", `{"name":"lobby"}`).want(409)
}

func TestAChangeBasedOnAnOldReadIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tag := s.do("POST", "/api/v1/groups", `{"name":"lobby"}`).want(201).header.Get("ETag")
	moved := s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":5}`, "If-Match", tag).want(200).header.Get("ETag")
	for _, m := range []string{"PATCH", "PUT"} {
		s.do(m, "/api/v1/groups/lobby", `{"memoryMb":6}`, "If-Match", tag).want(412).is("error.code", "PRECONDITION_FAILED")
	}
	s.do("DELETE", "/api/v1/groups/lobby", nil, "If-Match", tag).want(412)
	s.do("PUT", "/api/v1/groups/fresh", `{}`, "If-Match", tag).want(412)
	s.do("PATCH", "/api/v1/groups/lobby", `{}`, "If-Match", "yesterday").want(400)
	s.do("DELETE", "/api/v1/groups/lobby", nil, "If-Match", moved).want(204)
}

func TestADryRunTellsTheDifferenceAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"env": map[string]string{"A": "1"}})
	s.start("lobby")
	before := s.revision()
	type change = map[string]any
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"memoryMb":5,"env":{"B":"2"}}`).want(200).is("action", "update").is("dryRun", true).is("diff", []change{
		{"field": "env", "from": change{"A": "1"}, "to": change{"A": "1", "B": "2"}}, {"field": "memoryMb", "from": 1024, "to": 5},
	})
	s.do("PUT", "/api/v1/groups/lobby?dryRun=true", `{"env":{"A":"1"}}`).want(200).is("action", "none").is("diff", []change{})
	s.do("PUT", "/api/v1/groups/other?dryRun=true", `{"maxPlayers":5}`).want(200).is("action", "create").is("diff", []change{{"field": "maxPlayers", "from": 100, "to": 5}})
	s.do("POST", "/api/v1/groups?dryRun=true", `{"name":"other"}`).want(200).is("action", "create")
	s.do("POST", "/api/v1/groups?dryRun=true", `{"name":"lobby"}`).want(409)
	s.do("POST", "/api/v1/groups/lobby/start?dryRun=true", `{"count":2}`).want(200).is("start", []string{"lobby-2", "lobby-3"})
	s.do("POST", "/api/v1/groups/lobby/start?dryRun=true", `{"count":40}`).want(409)
	s.do("POST", "/api/v1/groups/lobby/scale?dryRun=true", `{"targetInstances":12}`).want(200).is("diff", []change{
		{"field": "maxInstances", "from": 10, "to": 12}, {"field": "minInstances", "from": 0, "to": 12},
	})
	s.do("DELETE", "/api/v1/groups/lobby?dryRun=true", nil).want(200).is("action", "delete").is("stop", []string{"lobby-1"})
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"memoryMb":-5}`).want(422)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a dry run wrote something: %v", keys)
	}
}

func TestADryRunTellsWhereWhatWouldBeStartedWouldGo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"minInstances": 1, "maxInstances": 9})
	s.start("lobby")
	s.do("POST", "/api/v1/groups/lobby/start?dryRun=true", `{"count":2}`).want(200).is("start", []string{"lobby-2", "lobby-3"}).is("placements", []any{}).
		naming("cannot predict where the 2 new instances would run: no scheduler decides about group lobby")
	a := s.scheduler("lobby")
	a.simulation = client.Simulation{
		Instances: []client.Outcome{{Name: "lobby-2", Effect: client.EffectPlaced, Node: "n1"}, {Name: "lobby-3", Effect: client.EffectPending, Reason: fleet.ReasonNoNodeFits, Message: "0 of 1 nodes can take it"}},
		Notes:     []string{"1 instances wait already"},
	}
	places := []map[string]any{{"name": "lobby-2", "effect": "placed", "node": "n1"}, {"name": "lobby-3", "effect": "pending", "reason": "NoNodeFits", "message": "0 of 1 nodes can take it"}}
	before := s.revision()
	for path, body := range map[string]string{"/start": `{"count":2}`, "/scale": `{"targetInstances":3}`} {
		s.do("POST", "/api/v1/groups/lobby"+path+"?dryRun=true", body).want(200).is("start", []string{"lobby-2", "lobby-3"}).is("placements", places).is("notes.0", "1 instances wait already")
	}
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"minInstances":3,"memoryMb":77}`).want(200).is("start", []string{"lobby-2", "lobby-3"}).is("placements", places).
		naming("the 1 existing instances keep their old spec")
	if asked := a.question.Load(); asked.Place.Count != 2 || asked.Place.Spec == nil || asked.Place.Spec.Resources.MemoryMiB != 77 {
		t.Errorf("the scheduler was asked %+v", asked.Place)
	}
	if r := s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"minInstances":3}`).want(200); strings.Contains(text(r), "old spec") {
		t.Errorf("a scaled group needs no deployment, but the dry run says %v", r.body)
	}
	s.do("POST", "/api/v1/groups?dryRun=true", `{"name":"arena","minInstances":2}`).want(200).is("action", "create").naming("cannot predict where the 2 new instances")
	calls := a.calls.Load()
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"minInstances":3,"maintenance":true}`).want(200).is("placements", []any{}).naming("2 instances would start after the maintenance")
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"minInstances":0}`).want(200).is("start", []string{}).naming("up to 1 of its 1 instances would stop")
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"minInstances":3,"scalingMode":"MANUAL"}`).want(200).is("placements", []any{})
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1,"spec":{}}}`).want(400).naming("place.spec")
	if keys := s.moved(before); len(keys) > 0 || a.calls.Load() != calls {
		t.Errorf("it wrote %v, or the scheduler was asked for nothing", keys)
	}
}

func TestADryRunThatIsNotUnderstoodIsNotARealOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	before := s.revision()
	for _, query := range []string{"dryRun", "dryRun=", "dryRun=1", "dryRun=TRUE", "dryRun=yes", "dryRun=false&dryRun=true", "dryRun=true;x", "dryRun=true&x=%zz", "dryrun=true", "DRYRUN=true", "dryRun=true&dryrun=true"} {
		s.do("DELETE", "/api/v1/groups/lobby?"+query, nil).want(400)
		s.do("PUT", "/api/configurations/lobby?"+query, `{"command":"x"}`).want(400)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("something was written: %v", keys)
	}
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=false", `{"maxPlayers":7}`).want(200).is("maxPlayers", 7)
}

func TestAGroupOthersReferToIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("base", nil)
	s.group("child", map[string]any{"parent": "base"})
	s.group("user", map[string]any{"dependsOn": []string{"base"}})
	id := s.start("base")
	before := s.revision()
	s.do("DELETE", "/api/v1/groups/base", nil).want(422).naming("child, user")
	s.do("DELETE", "/api/configurations/base", nil).want(422)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused deletion wrote something: %v", keys)
	}
	if i, _ := s.view.Snapshot().Instances.Get(id); i.Intent.Desired != fleet.DesiredRunning {
		t.Error("its instance was stopped")
	}
	s.do("DELETE", "/api/v1/groups/child", nil).want(204)
	s.do("PATCH", "/api/v1/groups/user", `{"dependsOn":[]}`).want(200)
	s.do("DELETE", "/api/v1/groups/base", nil).want(204)
	s.do("GET", "/api/v1/groups/base", nil).want(404)
	s.do("DELETE", "/api/v1/groups/base", nil).want(404)
	s.do("POST", "/api/v1/groups/base/start", nil).want(404)
	s.do("POST", "/api/v1/groups", `{"name":"base"}`).want(409).naming("being deleted")
	if g, ok := s.view.Snapshot().Groups.Get("base"); !ok || !g.Deleting {
		t.Error("the group is not marked: its instances would be forgotten")
	}
}

func TestScaleSetsTheBounds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 4})
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":3}`).want(200).is("minInstances", 3).is("maxInstances", 4)
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":6}`).want(200).is("minInstances", 6).is("maxInstances", 6).
		is("message", "maxInstances was raised from 4 to 6")
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":0}`).want(200).is("minInstances", 0).is("maxInstances", 6)
	g, _ := s.view.Snapshot().Groups.Get("lobby")
	if g.ScaledAt.IsZero() {
		t.Error("the time of the scaling is not kept")
	}
	for _, body := range []string{`{}`, `{"targetInstances":-1}`, `{"targetInstances":100001}`} {
		s.do("POST", "/api/v1/groups/lobby/scale", body).want(422).naming("targetInstances")
	}
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":"3"}`).want(400).naming("targetInstances")
	s.do("POST", "/api/v1/groups/nope/scale", `{"targetInstances":3}`).want(404)
	s.group("byhand", map[string]any{"scalingMode": "manual"})
	s.do("POST", "/api/v1/groups/byhand/scale", `{"targetInstances":3}`).want(409)
}

func TestBadInputIsRefusedByNameAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.group("other", map[string]any{"dependsOn": []string{"lobby"}, "parent": "lobby"})
	cases := []struct {
		name, body string
		status     int
		says       string
	}{
		{"malformed JSON", `{"name":`, 400, "JSON"},
		{"a stray comma", `{"name":"x",}`, 400, "JSON"},
		{"two values", `{"name":"x"}{"name":"y"}`, 400, "more than one"},
		{"an empty body", ``, 400, "empty"},
		{"blanks", "  \n", 400, "empty"},
		{"null", `null`, 400, "null"},
		{"a list", `[{"name":"x"}]`, 400, "object"},
		{"a string", `"x"`, 400, "object"},
		{"a number", `5`, 400, "object"},
		{"bytes that are no UTF-8", "{\"name\":\"\xff\"}", 400, "UTF-8"},
		{"an unknown field", `{"name":"x","colour":"red"}`, 400, "colour"},
		{"an unknown field of a field", `{"name":"x","readiness":{"type":"none","sleep":1}}`, 400, "readiness.sleep is not"},
		{"a word for a number", `{"name":"x","memoryMb":"lots"}`, 400, "memoryMb"},
		{"a fraction for a whole number", `{"name":"x","memoryMb":1.5}`, 400, "memoryMb"},
		{"a number past all bounds", `{"name":"x","memoryMb":99999999999999999999}`, 400, "memoryMb"},
		{"a number for a word", `{"name":"x","command":5}`, 400, "command"},
		{"a word for a list", `{"name":"x","templates":"base"}`, 400, "templates"},
		{"a list for an object", `{"name":"x","env":["A=1"]}`, 400, "env"},
		{"a number for an env value", `{"name":"x","env":{"A":1}}`, 400, "env"},
		{"a word for a truth", `{"name":"x","static":"yes"}`, 400, "static"},
		{"a number for the name", `{"name":5}`, 400, "name"},
		{"no name", `{}`, 422, "name"},
		{"an empty name", `{"name":""}`, 422, "name"},
		{"a name with capitals", `{"name":"Lobby"}`, 422, "name"},
		{"a name with blanks", `{"name":"a b"}`, 422, "name"},
		{"a name that starts with a dash", `{"name":"-a"}`, 422, "name"},
		{"a name with a slash", `{"name":"a/b"}`, 422, "name"},
		{"a name that is too long", `{"name":"` + strings.Repeat("a", 33) + `"}`, 422, "name"},
		{"a name that climbs", `{"name":".."}`, 422, "name"},
		{"a port of zero", `{"name":"x","portRangeStart":0}`, 422, "portRangeStart"},
		{"a port past the last", `{"name":"x","portRangeEnd":65536}`, 422, "portRangeEnd"},
		{"ports in the wrong order", `{"name":"x","portRangeStart":31000,"portRangeEnd":30000}`, 422, "portRangeStart"},
		{"an additional port out of range", `{"name":"x","additionalPorts":[{"name":"q","port":70000}]}`, 422, `"additionalPorts[0].port must be between 1 and 65535, is 70000"`},
		{"an additional port of a protocol nobody speaks", `{"name":"x","additionalPorts":[{"name":"q","protocol":"sctp","port":70}]}`, 422, "protocol"},
		{"an additional port twice over", `{"name":"x","additionalPorts":[{"name":"q","port":70,"start":1}]}`, 422, "additionalPorts[0] takes either port"},
		{"min above max", `{"name":"x","minInstances":5,"maxInstances":3}`, 422, "minInstances"},
		{"a negative minimum", `{"name":"x","minInstances":-1}`, 422, "minInstances"},
		{"a negative maximum", `{"name":"x","maxInstances":-1}`, 422, "maxInstances"},
		{"negative memory", `{"name":"x","memoryMb":-1}`, 422, "memoryMb"},
		{"memory no machine has", `{"name":"x","memoryMb":2000000000}`, 422, "memoryMb"},
		{"negative cpu", `{"name":"x","cpu":-1}`, 422, "cpu"},
		{"negative cpu in cores", `{"name":"x","cpuReservation":-0.5}`, 422, "cpuReservation must be"},
		{"cpu in cores past all bounds", `{"name":"x","cpuReservation":1e300}`, 422, "cpuReservation must be"},
		{"a negative cpu limit", `{"name":"x","cpuLimit":-1}`, 422, "cpuLimit"},
		{"negative disk", `{"name":"x","diskReservationMb":-1}`, 422, "diskReservationMb"},
		{"negative players", `{"name":"x","maxPlayers":-1}`, 422, "maxPlayers"},
		{"a negative grace", `{"name":"x","shutdownGraceSeconds":-1}`, 422, "shutdownGraceSeconds"},
		{"a negative timeout", `{"name":"x","startupTimeoutSeconds":-1}`, 422, "startupTimeoutSeconds"},
		{"a threshold of zero", `{"name":"x","scaleUpThreshold":0}`, 422, "scaleUpThreshold"},
		{"a threshold above one", `{"name":"x","scaleUpThreshold":1.5}`, 422, "scaleUpThreshold"},
		{"an unknown runtime", `{"name":"x","runtime":"vm"}`, 422, "runtime"},
		{"an unknown mode", `{"name":"x","scalingMode":"ELASTIC"}`, 422, "scalingMode"},
		{"an unknown readiness", `{"name":"x","readiness":{"type":"hope"}}`, 422, "readiness"},
		{"a readiness with what belongs to another", `{"name":"x","readiness":{"type":"port","path":"/"}}`, 422, "readiness.path"},
		{"a readiness at a port nobody declared", `{"name":"x","readiness":{"type":"port","port":"query"}}`, 422, "readiness.port"},
		{"a pattern that is none", `{"name":"x","readiness":{"type":"log","pattern":"("}}`, 422, "readiness.pattern"},
		{"a console that is to say nothing", `{"name":"x","readiness":{"type":"log"}}`, 422, "readiness.pattern"},
		{"a datagram that cannot be read", `{"name":"x","readiness":{"type":"udp","send":"\\q"}}`, 422, "readiness.send"},
		{"an unknown liveness", `{"name":"x","liveness":{"type":"hope"}}`, 422, "liveness.type"},
		{"a liveness by the console", `{"name":"x","liveness":{"type":"log","pattern":"x"}}`, 422, "liveness.type"},
		{"a liveness that asks without pause", `{"name":"x","liveness":{"type":"port","intervalSeconds":0.001}}`, 422, "liveness.intervalSeconds"},
		{"a liveness without patience", `{"name":"x","liveness":{"type":"port","timeoutSeconds":-1}}`, 422, "liveness.timeoutSeconds"},
		{"a liveness that counts backwards", `{"name":"x","liveness":{"type":"port","failures":-1}}`, 422, "liveness.failures"},
		{"an unknown end of patience", `{"name":"x","liveness":{"type":"port","then":"cry"}}`, 422, "liveness.then"},
		{"an unknown field of liveness", `{"name":"x","liveness":{"type":"port","sleep":1}}`, 400, "liveness.sleep is not"},
		{"a word for an interval", `{"name":"x","liveness":{"intervalSeconds":"often"}}`, 400, "intervalSeconds"},
		{"negative processes", `{"name":"x","limits":{"processes":-1}}`, 422, "limits.processes"},
		{"a weight of disks past all bounds", `{"name":"x","limits":{"ioWeight":10001}}`, 422, "limits.ioWeight"},
		{"a negative limit of disk", `{"name":"x","limits":{"diskMb":-1}}`, 422, "limits.diskMb"},
		{"a negative limit of logs", `{"name":"x","limits":{"logMb":-1}}`, 422, "limits.logMb"},
		{"an unknown limit", `{"name":"x","limits":{"diskMiB":1}}`, 400, "limits.diskMiB is not"},
		{"a user that cannot be", `{"name":"x","confine":{"user":"a b"}}`, 422, "confine.user"},
		{"a container of nothing", `{"name":"x","runtime":"docker"}`, 422, "container.image"},
		{"a mount that is none", `{"name":"x","container":{"volumes":["maps"]}}`, 422, "container.volumes[0]"},
		{"a network that cannot be", `{"name":"x","container":{"network":"a b"}}`, 422, "container.network"},
		{"a directory that climbs", `{"name":"x","container":{"directory":"/a/../b"}}`, 422, "container.directory"},
		{"a remote console at a port nobody declared", `{"name":"x","rcon":{"port":"rcon","password":"x"}}`, 422, "rcon.port"},
		{"a remote console without a password", `{"name":"x","additionalPorts":[{"name":"r","port":70}],"rcon":{"port":"r"}}`, 422, "rcon.password"},
		{"a password without a remote console", `{"name":"x","rcon":{"password":"x"}}`, 422, "rcon.port"},
		{"a negative lifetime", `{"name":"x","maxLifetimeSeconds":-1}`, 422, "maxLifetimeSeconds"},
		{"an unknown signal", `{"name":"x","stopSignal":"BOOM"}`, 422, "stopSignal"},
		{"an unknown crash policy", `{"name":"x","onCrash":"cry"}`, 422, "onCrash"},
		{"an unknown policy for lost nodes", `{"name":"x","onNodeLoss":"cry"}`, 422, "onNodeLoss"},
		{"an unknown policy for returned nodes", `{"name":"x","onNodeReturn":"cry"}`, 422, "onNodeReturn"},
		{"an unknown strategy", `{"name":"x","updateStrategy":"YOLO"}`, 422, "updateStrategy"},
		{"an unknown template", `{"name":"x","templates":["nope"]}`, 422, `"templates[0] names`},
		{"an unknown template of a group", `{"name":"x","templates":["g/nope"]}`, 422, "g/nope"},
		{"an unknown template to choose from", `{"name":"x","templateInstallationConfig":{"oneOf":[{"name":"nope"}]}}`, 422, "templateInstallationConfig.oneOf[0] names"},
		{"an unknown group of templates", `{"name":"x","templateInstallationConfig":{"allInGroups":["nope"]}}`, 422, "templateInstallationConfig.allInGroups[0] names"},
		{"an unknown template in full", `{"name":"x","templateInstallationConfig":{"allOf":[{"name":"nope"}]}}`, 422, "templateInstallationConfig.allOf[0] names"},
		{"a template that climbs", `{"name":"x","templates":["../../etc"]}`, 422, "templates"},
		{"a file to modify that climbs", `{"name":"x","fileModifications":["../x"]}`, 422, "fileModifications"},
		{"a file to modify from the root", `{"name":"x","fileModifications":["/etc/passwd"]}`, 422, "fileModifications"},
		{"a protected path that climbs", `{"name":"x","protectedPaths":["a/../../b"]}`, 422, "protectedPaths"},
		{"a name no variable can have", `{"name":"x","env":{"A=B":"1"}}`, 422, "env"},
		{"a variable that loads foreign code", `{"name":"x","env":{"LD_PRELOAD":"x.so"}}`, 422, "LD_PRELOAD"},
		{"a stop command of two lines", `{"name":"x","stopCommand":"a\nb"}`, 422, "stopCommand"},
		{"a stop command no console takes", `{"name":"x","stopCommand":"` + strings.Repeat("s", 1001) + `"}`, 422, "stopCommand"},
		{"a jar that climbs", `{"name":"x","jarFile":"../x.jar"}`, 422, "jarFile"},
		{"a jar from the root", `{"name":"x","jarFile":"/opt/x.jar"}`, 422, "jarFile"},
		{"a jar with a NUL", `{"name":"x","jarFile":"x\u0000"}`, 422, "jarFile"},
		{"an argument with a NUL", `{"name":"x","jvmArgs":["-Da","a\u0000"]}`, 422, "jvmArgs[1]"},
		{"a host address with a NUL", `{"name":"x","hostAddress":"a\u0000"}`, 422, "hostAddress"},
		{"a value with a NUL", `{"name":"x","variableValues":{"A":"a\u0000"}}`, 422, "variableValues"},
		{"more nodes than can be meant", `{"name":"x","nodes":["n"` + strings.Repeat(`,"n"`, 256) + `]}`, 422, "nodes"},
		{"no nodes", `{"name":"x","nodes":[]}`, 422, "nodes"},
		{"a node that cannot be", `{"name":"x","nodes":["a/b"]}`, 422, "nodes"},
		{"a label that is no expression", `{"name":"x","nodeAffinity":["ssd","rack in (a"]}`, 422, "nodeAffinity[1]"},
		{"where the label goes wrong", `{"name":"x","nodeAffinity":["rack in (a"]}`, 422, "at character 11"},
		{"a label to avoid that is no expression", `{"name":"x","nodeAntiAffinity":["=x"]}`, 422, "nodeAntiAffinity[0]"},
		{"a preferred label that is no expression", `{"name":"x","nodePreferences":[{"label":"a b","weight":1}]}`, 422, "at character 3"},
		{"a preference past all weights", `{"name":"x","nodePreferences":[{"label":"a","weight":101}]}`, 422, "nodePreferences[0].weight"},
		{"a preference below all weights", `{"name":"x","nodePreferences":[{"label":"a","weight":-101}]}`, 422, "nodePreferences[0].weight"},
		{"half a preference", `{"name":"x","nodePreferences":[{"label":"a","weight":0.5}]}`, 400, "weight"},
		{"a preference of nothing", `{"name":"x","nodePreferences":[{"weight":1}]}`, 422, "nodePreferences[0].label"},
		{"a skew over no label", `{"name":"x","spreadMaxSkew":1}`, 422, "spreadMaxSkew"},
		{"a negative skew", `{"name":"x","spreadConstraint":"rack","spreadMaxSkew":-1}`, 422, "spreadMaxSkew"},
		{"fewer than none on a node", `{"name":"x","maxPerNode":-1}`, 422, "maxPerNode"},
		{"an unknown profile", `{"name":"x","placementProfile":"best"}`, 422, "placementProfile"},
		{"a weight of nothing known", `{"name":"x","placementWeights":{"luck":1}}`, 422, "luck"},
		{"a negative weight", `{"name":"x","placementWeights":{"memory":-1}}`, 422, "placementWeights"},
		{"a weight past all bounds", `{"name":"x","placementWeights":{"memory":1e300}}`, 422, "placementWeights"},
		{"a weight that is a word", `{"name":"x","placementWeights":{"memory":"much"}}`, 400, "placementWeights"},
		{"a label no group can have", `{"name":"x","labels":{"a b":"c"}}`, 422, "labels"},
		{"a negative quota", `{"name":"x","quota":{"memoryMb":-1}}`, 422, "quota.memoryMb"},
		{"a quota past all bounds", `{"name":"x","quota":{"cpu":2000000000}}`, 422, "quota.cpu"},
		{"a quota of something else", `{"name":"x","quota":{"players":5}}`, 400, "quota.players is not"},
		{"a negative reservation", `{"name":"x","reserved":{"instances":-1}}`, 422, "reserved.instances"},
		{"more reserved than allowed", `{"name":"x","quota":{"instances":2},"reserved":{"instances":3}}`, 422, "reserved"},
		{"a label given twice", `{"name":"x","labels":{"a":"b","a":"c"}}`, 400, "labels.a is given twice"},
		{"an unknown field of a preference", `{"name":"x","nodePreferences":[{"label":"a"},{"label":"b","wieght":3}]}`, 400, "nodePreferences[1].wieght is not"},
		{"a label without a key", `{"name":"x","labels":{"":"c"}}`, 422, "labels"},
		{"a spread over no label's key", `{"name":"x","spreadConstraint":"rack=a"}`, 422, "spreadConstraint"},
		{"a priority past all bounds", `{"name":"x","priority":-9223372036854775808}`, 422, "priority"},
		{"a timeout past all bounds", `{"name":"x","startupTimeoutSeconds":9223372036854775807}`, 422, "startupTimeoutSeconds"},
		{"a skew past all bounds", `{"name":"x","spreadConstraint":"rack","spreadMaxSkew":1000000000}`, 422, "spreadMaxSkew"},
		{"two additional ports of one name", `{"name":"x","additionalPorts":[{"name":"q","port":70},{"name":"Q","port":71}]}`, 422, "additionalPorts[1]"},
		{"an additional port without a number", `{"name":"x","additionalPorts":[{"name":"q"}]}`, 422, "additionalPorts[0].start"},
		{"an additional range in the wrong order", `{"name":"x","additionalPorts":[{"name":"q","start":9,"end":3}]}`, 422, "additionalPorts[0].start"},
		{"a word for rebalance", `{"name":"x","rebalance":"yes"}`, 400, "rebalance"},
		{"nothing to run", `{"name":"x","jarFile":""}`, 422, "command"},
		{"itself as parent", `{"name":"x","parent":"x"}`, 422, "parent"},
		{"itself as dependency", `{"name":"x","dependsOn":["x"]}`, 422, "dependsOn"},
		{"a parent nobody knows", `{"name":"x","parent":"nope"}`, 422, "parent"},
		{"a dependency nobody knows", `{"name":"x","dependsOn":["nope"]}`, 422, "dependsOn"},
		{"two mistakes, both told", `{"name":"x","memoryMb":-1,"portRangeEnd":0}`, 422, "portRangeEnd"},
	}
	before := s.revision()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.do("POST", "/api/v1/groups", c.body).want(c.status).naming(c.says)
			if c.status == 422 && !strings.Contains(c.says, "name") {
				sub.do("PUT", "/api/v1/groups/x", c.body).want(c.status).naming(c.says)
			}
			if c.status == 400 {
				sub.do("PUT", "/api/v1/groups/x", c.body).want(400).naming(c.says)
				sub.do("PATCH", "/api/v1/groups/lobby", c.body).want(400).naming(c.says)
				sub.do("POST", "/api/v1/groups/lobby/scale", c.body).want(400)
			}
		})
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"parent":"other"}`).want(422).naming("parent")
	s.do("PATCH", "/api/v1/groups/lobby", `{"dependsOn":["other"]}`).want(422).naming("dependsOn")
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":3,"minInstances":4}`).want(422).naming("minInstances")
	s.do("PATCH", "/api/v1/groups/lobby", `{"name":"renamed"}`).want(422).naming("name")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
}

func TestATemplateThatWentDoesNotBlockOtherChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("a")
	s.group("lobby", map[string]any{"templates": []string{"a"}})
	h, _ := s.view.Snapshot().TemplateHeads.Get("default/a")
	s.removeTemplate(h)
	s.do("PATCH", "/api/v1/groups/lobby", `{"maintenance":true}`).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"templates":["a","b"]}`).want(422).naming("default/b")
}

func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 5 {
		s.group(fmt.Sprintf("g%d", i), nil)
	}
	r := s.do("GET", "/api/v1/groups?page=2&pageSize=2", nil).want(200).is("total", 5).is("page", 2).is("pageSize", 2)
	if list := r.data(); len(list) != 2 || list[0].(map[string]any)["name"] != "g2" {
		t.Errorf("page 2: %v", list)
	}
	s.do("GET", "/api/v1/groups?page=9", nil).want(200).is("data", []any{}).is("total", 5)
	s.do("GET", "/api/v1/groups?page=9223372036854775807&pageSize=500", nil).want(200).is("data", []any{})
	s.do("GET", "/api/v1/groups?pageSize=100000", nil).want(200).is("pageSize", 500)
	s.do("GET", "/api/v1/groups?pageSize=0&page=-3", nil).want(200).is("pageSize", 1).is("page", 1)
	s.do("GET", "/api/v1/groups?page=two", nil).want(400).naming("page")
	s.do("GET", "/api/v1/templates?pageSize=999", nil).want(200).is("pageSize", 200)
}

func TestAGroupIsTheSameInBothDialects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/configurations/older", `{"command":"run","ramMB":64,"minimumServiceCount":2,"shutdownGraceSeconds":3,"availablePorts":{"min":5,"max":9},"properties":{"a":"b"}}`).want(204)
	s.do("GET", "/api/v1/groups/older", nil).want(200).is("memoryMb", 64).is("minInstances", 2).is("maxInstances", 0).
		is("shutdownGraceSeconds", 3).is("portRangeStart", 5).is("variableValues", map[string]string{"a": "b"}).is("nodes", []string{"node-1"})
	s.group("newer", map[string]any{"memoryMb": 7, "env": map[string]string{"A": "1"}})
	s.do("GET", "/api/configurations/newer", nil).want(200).is("ramMB", 7).is("environmentVariables", map[string]string{"A": "1"})
}

func TestAQuotaBelowWhatIsHeldIsAcceptedAndExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"memoryMb": 64})
	id := s.start("lobby")
	s.hold(id, "node-1", fleet.Resources{MemoryMiB: 64})
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("held", map[string]int{"memoryMb": 64, "cpu": 0, "instances": 1}).is("message", "")
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"quota":{"memoryMb":63}}`).want(200).naming("64 of at most 63 MiB")
	s.do("PATCH", "/api/v1/groups/lobby", `{"quota":{"memoryMb":63}}`).want(200).naming("64 of at most 63 MiB")
	s.do("PATCH", "/api/v1/groups/lobby", `{"quota":{"memoryMb":64}}`).want(200).is("message", "")
}
