package universe

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// node is a fake agent. Methods it does not define must not be called.
type node struct {
	upstream.Agent
	heard []string
	beats []client.Heartbeat
	lines []string
}

func (n *node) Read(context.Context, fleet.InstanceID, int64, int) (client.Chunk, error) {
	return client.Chunk{}, nil
}

func (n *node) WriteLine(_ context.Context, _ fleet.InstanceID, line string) error {
	n.heard = append(n.heard, line)
	return nil
}

func (n *node) Export(context.Context, fleet.InstanceID, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.Unavailable, "nothing is exported here")
}

func (n *node) Cache(context.Context) (client.Cache, error) { return client.Cache{}, nil }

func (n *node) Warm(context.Context, []string) (client.WarmAnswer, error) {
	return client.WarmAnswer{}, nil
}

func (n *node) RCON(_ context.Context, _ fleet.InstanceID, command string) (client.RemoteAnswer, error) {
	return client.RemoteAnswer{Answer: "you said " + command, Incomplete: true}, nil
}

func (n *node) Find(_ context.Context, _ fleet.InstanceID, q client.Query) (client.Log, error) {
	out := client.Log{}
	if q.Count {
		out.Total = int64(len(n.lines))
	}
	for _, text := range n.lines[max(0, len(n.lines)-q.Lines):] {
		out.Lines = append(out.Lines, client.Line{Text: text})
	}
	return out, nil
}

func (n *node) Heartbeat(_ context.Context, _ fleet.InstanceID, h client.Heartbeat) error {
	n.beats = append(n.beats, h)
	return nil
}

func (n *node) Measured(context.Context, fleet.InstanceID) (client.Measured, error) {
	return client.Measured{}, errs.New(errs.NotFound, "nothing is measured here")
}

func (n *node) Follow(context.Context, fleet.InstanceID, client.Place) (*client.Stream[client.Frame], error) {
	return nil, errs.New(errs.Unavailable, "nothing is followed here")
}

func (n *node) Instance(context.Context, fleet.InstanceID) (client.Instance, error) {
	return client.Instance{}, nil
}

// site serves the dialect on a listener.
type site struct {
	*world
	node *node
	url  string
	now  time.Time
	// denied are permissions the caller lacks. self is the instance whose own token the caller sends.
	denied []auth.Permission
	self   string
}

// guard admits callers unless they lack the permission.
func (s *site) guard(d server.Demand) gin.HandlerFunc {
	return func(c *gin.Context) {
		if d.Self() && s.self != "" && c.Param("id") == s.self {
			return
		}
		for _, p := range d.Permissions() {
			if slices.Contains(s.denied, p) {
				fail(c, errs.New(errs.Denied, "%s is needed", p))
				return
			}
		}
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{world: newWorld(t), node: &node{}, now: at}
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	now := func() time.Time { return s.now }
	for _, r := range New(Config{
		Operations: ops.New(ops.Config{
			Store: s.store, View: s.view, Log: slog.New(slog.DiscardHandler), Now: now,
			Agents: upstream.NewAgents(upstream.NewHealth(telemetry.NewMetrics(prometheus.NewRegistry(), "test"), slog.New(slog.DiscardHandler)), s.view, func(*fleet.Node) upstream.Agent { return s.node }),
		}),
		NodeID: "node-1", ClusterName: "test", Now: now,
		By:    func(*gin.Context) txn.Actor { return txn.Actor{User: "ann"} },
		Shown: func(*gin.Context) content.Visibility { return content.VisibleToOperators },
		May:   func(_ *gin.Context, p auth.Permission) bool { return !slices.Contains(s.denied, p) },
	}).Routes() {
		e.Handle(r.Method, r.Path, s.guard(r.Demand), r.Handle)
	}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// reply is a response with its decoded JSON body.
type reply struct {
	status int
	header http.Header
	body   any
}

func (r reply) field(name string) any {
	m, _ := r.body.(map[string]any)
	return m[name]
}

func (s *site) do(method, path, body string, header ...string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &r.body); err != nil {
			s.t.Fatalf("%s %s answered %q", method, path, raw)
		}
	}
	return r
}

// want sends a request and checks the status and, for an error, the envelope and part of the message.
func (s *site) want(status int, message, method, path, body string) reply {
	s.t.Helper()
	r := s.do(method, path, body)
	said, isText := r.field("error").(string)
	if r.status != status || status >= 400 && (!isText || len(r.body.(map[string]any)) != 1 || !strings.Contains(said, message)) {
		s.t.Errorf("%s %s %s: %d %v, want %d with %q", method, path, body, r.status, r.body, status, message)
	}
	return r
}

func TestPing(t *testing.T) {
	s := newSite(t)
	r := s.want(200, "", "GET", "/api/ping", "")
	if r.field("status") != "ok" || r.field("nodeId") != "node-1" || r.field("clusterName") != "test" || r.field("master") != true {
		t.Errorf("%v", r.body)
	}
}

func TestAConfigurationComesStaysAndGoes(t *testing.T) {
	s := newSite(t)
	s.want(404, "Configuration not found", "GET", "/api/configurations/lobby", "")
	s.want(404, "Configuration not found", "DELETE", "/api/configurations/lobby", "")
	if r := s.want(204, "", "PUT", "/api/configurations/lobby", `{"name":"other","ramMB":512}`); r.body != nil || r.header.Get("Warning") != "" {
		t.Errorf("%v", r)
	}
	if r := s.want(200, "", "GET", "/api/configurations/lobby", ""); r.field("name") != "lobby" || r.field("ramMB") != 512.0 || r.field("cpu") != 100.0 {
		t.Errorf("%v", r.body)
	}
	if r := s.want(204, "", "PUT", "/api/configurations/lobby", `{"colour":"red","a\"\n":1}`); r.header.Get("Warning") != `299 orrery "unknown fields ignored: a\\\"\\n, colour"` {
		t.Errorf("Warning: %s", r.header.Get("Warning"))
	}
	if r := s.want(200, "", "GET", "/api/configurations", ""); len(r.body.([]any)) != 1 {
		t.Errorf("%v", r.body)
	}
	s.want(204, "", "DELETE", "/api/configurations/lobby", "")
	s.want(404, "", "GET", "/api/configurations/lobby", "")
	s.want(404, "", "DELETE", "/api/configurations/lobby", "")
	if r := s.want(200, "", "GET", "/api/configurations", ""); len(r.body.([]any)) != 0 {
		t.Errorf("%v", r.body)
	}
}

func TestARevisionInsistedOnIsCompared(t *testing.T) {
	s := newSite(t)
	s.want(204, "", "PUT", "/api/configurations/lobby", `{}`)
	first := s.want(200, "", "GET", "/api/configurations/lobby", "").header.Get("ETag")
	second := s.match(204, "PUT", first, `{"ramMB":1}`).header.Get("ETag")
	if first == "" || second == "" || first == second {
		t.Errorf("ETags %s and %s", first, second)
	}
	s.match(412, "PUT", first, `{"ramMB":2}`)
	s.match(412, "DELETE", first, "")
	s.match(400, "PUT", "yesterday", `{}`)
	s.match(204, "DELETE", second, "")
}

// match sends a request for the configuration lobby with an If-Match header.
func (s *site) match(status int, method, tag, body string) reply {
	s.t.Helper()
	r := s.do(method, "/api/configurations/lobby", body, "If-Match", tag)
	if r.status != status {
		s.t.Errorf("%s with If-Match %s: %d %v, want %d", method, tag, r.status, r.body, status)
	}
	return r
}

func TestADryRunChangesNothing(t *testing.T) {
	s := newSite(t)
	before := s.view.Snapshot().Rev
	r := s.want(200, "", "PUT", "/api/configurations/lobby?dryRun=true", `{"ramMB":7}`)
	if after, _ := r.field("after").(map[string]any); r.field("before") != nil || after["ramMB"] != 7.0 {
		t.Errorf("%v", r.body)
	}
	s.want(422, "ramMB", "PUT", "/api/configurations/lobby?dryRun=true", `{"ramMB":-7}`)
	if now := s.view.Snapshot().Rev; now != before {
		t.Errorf("revision %d after %d", now, before)
	}
}

func TestBadConfigurationsAreRefusedAndLeaveNoTrace(t *testing.T) {
	s := newSite(t)
	before := s.view.Snapshot().Rev
	for _, tc := range []struct {
		body    string
		status  int
		message string
	}{
		{``, 400, "the body is empty"},
		{`{`, 400, "not valid JSON"},
		{`[]`, 400, "must be an object"},
		{`null`, 400, "must be an object"},
		{`{"ramMB":"much"}`, 400, "ramMB must be a whole number"},
		{`{"availablePorts":{"min":"x"}}`, 400, "availablePorts.min must be a whole number"},
		{`{"nodes":"node-1"}`, 400, "nodes must be a list"},
		{`{"nodes":[]}`, 422, `nodes must name at least one node`},
		{`{"ramMB":-5}`, 422, "ramMB must not be negative"},
		{`{"availablePorts":{"min":5,"max":3}}`, 422, "availablePorts.min must not be greater than availablePorts.max"},
		{`{"runtime":"warp"}`, 422, "runtime must be one of"},
		{`{"shutdownGraceSeconds":-1}`, 422, "shutdownGraceSeconds must be"},
		{`{"templateInstallationConfig":{"allOf":[{"name":"x","group":"y"}]}}`, 422, "templateInstallationConfig.allOf[0] names a template that does not exist"},
		{`{"ramMB":-5,"availablePorts":{"max":0}}`, 422, "availablePorts.max must be between"},
	} {
		s.want(tc.status, tc.message, "PUT", "/api/configurations/lobby", tc.body)
	}
	s.want(422, "name must be", "PUT", "/api/configurations/NOT-A-NAME", `{}`)
	if now := s.view.Snapshot(); now.Rev != before || now.Groups.Len() != 0 {
		t.Errorf("revision %d after %d, %d groups", now.Rev, before, now.Groups.Len())
	}
}

func TestAnInstanceIsCreatedStoppedAndStartedUnderOneID(t *testing.T) {
	s := newSite(t)
	s.commit(store.Create(keys.Node("node-1"), fleet.Node{ID: "node-1", Capacity: fleet.Resources{MemoryMiB: 8192, CPU: 400}}))
	s.want(204, "", "PUT", "/api/configurations/lobby", `{}`)
	s.want(204, "", "PUT", "/api/configurations/huge", `{"ramMB":100000}`)
	s.want(400, "Configuration not found", "POST", "/api/instances", `{"configurationName":"nobody"}`)
	s.want(400, "configurationName", "POST", "/api/instances", `{}`)
	s.want(400, "", "POST", "/api/instances", ``)
	s.want(503, "no node can ever hold", "POST", "/api/instances", `{"configurationName":"huge"}`)
	made := s.want(201, "", "POST", "/api/instances", `{"configurationName":"lobby"}`)
	id, _ := made.field("id").(string)
	if made.field("state") != "CREATING" || made.field("allocatedPort") != 0.0 || len(id) != 6 {
		t.Errorf("created %v", made.body)
	}
	for _, ref := range []string{id, "lobby-1"} {
		if r := s.want(200, "", "GET", "/api/instances/"+ref, ""); r.field("id") != id {
			t.Errorf("%s is %v", ref, r.body)
		}
	}
	s.want(404, "Instance not found", "GET", "/api/instances/nobody", "")
	for range 2 {
		if r := s.want(200, "", "DELETE", "/api/instances/"+id, ""); r.field("message") != "Instance "+id+" stopped" {
			t.Errorf("%v", r.body)
		}
		if r := s.want(200, "", "GET", "/api/instances/"+id, ""); r.field("state") != "STOPPED" {
			t.Errorf("%v", r.body)
		}
	}
	s.want(404, "", "DELETE", "/api/instances/nobody", "")

	s.want(400, "target must be", "PATCH", "/api/instances/"+id+"/lifecycle", "")
	s.want(400, "target must be", "PATCH", "/api/instances/"+id+"/lifecycle?target=fly", "")
	s.want(404, "", "PATCH", "/api/instances/nobody/lifecycle?target=start", "")
	r := s.want(200, "", "PATCH", "/api/instances/"+id+"/lifecycle?target=START", "")
	if i, _ := r.field("instance").(map[string]any); i["id"] != id || i["state"] != "CREATING" {
		t.Errorf("started %v", r.body)
	}
	s.want(200, "", "PATCH", "/api/instances/"+id+"/lifecycle?target=start", "") // it is already started
	s.want(200, "", "PATCH", "/api/instances/"+id+"/lifecycle?target=restart", "")
	s.want(200, "", "PATCH", "/api/instances/"+id+"/lifecycle?target=stop", "")
	s.want(204, "", "DELETE", "/api/configurations/lobby", "")
	s.want(400, "Configuration not found", "PATCH", "/api/instances/"+id+"/lifecycle?target=start", "")
}

func TestTheListHidesAndAllShowsEverything(t *testing.T) {
	s := newSite(t)
	s.commit(runningInstance()...)
	i, _ := s.view.Snapshot().Instances.Get(id)
	s.now = at.Add(time.Hour)
	if r := s.want(200, "", "GET", "/api/instances", ""); len(r.body.([]any)) != 1 {
		t.Errorf("running: %v", r.body)
	}
	s.commit(store.Replace(keys.Status(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Crashed, ChangedAt: at, FinishedAt: at}, i.Status.ModRev))
	if r := s.want(200, "", "GET", "/api/instances", ""); len(r.body.([]any)) != 0 {
		t.Errorf("crashed an hour ago: %v", r.body)
	}
	if r := s.want(200, "", "GET", "/api/instances?all=true", ""); len(r.body.([]any)) != 1 {
		t.Errorf("all: %v", r.body)
	}
	s.want(200, "", "GET", "/api/instances/"+string(id), "")
}

func TestTheConsoleOfAnInstance(t *testing.T) {
	s := newSite(t)
	s.commit(runningInstance()...)
	s.node.lines = []string{"one", "two\x1b[0m", "three"}
	if r := s.want(200, "", "POST", "/api/instances/abc123/execute", `{"command":"say $HOME \\ ^A"}`); r.field("message") != "Command sent to abc123" {
		t.Errorf("%v", r.body)
	}
	if !slices.Equal(s.node.heard, []string{`say $HOME \ ^A`}) {
		t.Errorf("heard %q", s.node.heard)
	}
	s.want(400, "command", "POST", "/api/instances/abc123/execute", `{}`)
	s.want(404, "Instance not found", "POST", "/api/instances/nobody/execute", `{"command":"x"}`)
	s.want(422, "command must not contain control characters", "POST", "/api/instances/abc123/execute", `{"command":"a\nb"}`)
	for query, want := range map[string]struct{ lines, asked int }{
		"": {3, 100}, "?lines=2": {2, 2}, "?lines=many": {3, 100}, "?lines=0": {1, 1}, "?lines=9999999": {3, 100_000},
	} {
		r := s.want(200, "", "GET", "/api/instances/lobby-1/logs"+query, "")
		if lines, _ := r.field("lines").([]any); len(lines) != want.lines || r.field("requestedLines") != float64(want.asked) ||
			r.field("totalLines") != 3.0 || r.field("instanceId") != "abc123" {
			t.Errorf("logs%s: %v", query, r.body)
		}
	}
	s.want(404, "", "GET", "/api/instances/nobody/logs", "")
	s.node.lines = nil
	if r := s.want(200, "", "GET", "/api/instances/abc123/logs", ""); len(r.field("lines").([]any)) != 0 {
		t.Errorf("no output: %v", r.body)
	}
}

func TestAHeartbeatIsHandedToTheAgentAndRevivesNothing(t *testing.T) {
	s := newSite(t)
	s.commit(runningInstance()...)
	s.now = at.Add(time.Minute)
	s.want(404, "Instance not found", "PUT", "/api/instances/nobody/state", `{"state":"ONLINE"}`)
	s.want(400, "Invalid state", "PUT", "/api/instances/abc123/state", `{"state":"FLYING"}`)
	s.want(400, "lastHeartbeat", "PUT", "/api/instances/abc123/state", `{"state":"ONLINE","lastHeartbeat":"soon"}`)
	r := s.want(200, "", "PUT", "/api/instances/abc123/state", `{"state":"ONLINE","lastHeartbeat":"1893553450000","players":7}`)
	if r.field("lastHeartbeat") != 1893553450000.0 || r.field("players") != 7.0 || r.field("maxPlayers") != 20.0 {
		t.Errorf("%v", r.body)
	}
	if len(s.node.beats) != 1 || s.node.beats[0].State != "ONLINE" || *s.node.beats[0].Players != 7 {
		t.Errorf("the agent heard %+v", s.node.beats)
	}
	i, _ := s.view.Snapshot().Instances.Get(id)
	rev := s.commit(store.Replace(keys.Status(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Stopped, ChangedAt: at}, i.Status.ModRev)).Rev
	s.want(409, "has stopped: ", "PUT", "/api/instances/abc123/state", `{"state":"ONLINE"}`)
	if now := s.view.Snapshot().Rev; len(s.node.beats) != 1 || now != rev {
		t.Errorf("a late heartbeat left a trace: %+v, revision %d after %d", s.node.beats, now, rev)
	}
}

func TestNodesAndTemplates(t *testing.T) {
	s := newSite(t)
	s.commit(append(runningInstance(), store.Create(keys.TemplateHead(content.TemplateRef{Group: "default", Name: "server"}),
		content.TemplateHead{TemplateRef: content.TemplateRef{Group: "default", Name: "server"}, Digest: "d1"}))...)
	if r := s.want(200, "", "GET", "/api/cluster/nodes", ""); len(r.body.([]any)) != 1 {
		t.Errorf("%v", r.body)
	}
	if r := s.want(200, "", "GET", "/api/cluster/nodes/node-1", ""); len(r.field("instances").([]any)) != 1 {
		t.Errorf("%v", r.body)
	}
	s.want(404, "Node not found", "GET", "/api/cluster/nodes/node-2", "")
	if r := s.want(200, "", "GET", "/api/templates", ""); len(r.body.([]any)) != 1 {
		t.Errorf("%v", r.body)
	}
	r := s.want(200, "", "GET", "/api/templates/default/server", "")
	if r.field("group") != "default" || r.field("name") != "server" || r.field("path") != "templates/default/server" {
		t.Errorf("%v", r.body)
	}
	s.want(404, "Template not found", "GET", "/api/templates/default/nothing", "")
}

func TestEveryRouteAsksForItsPermission(t *testing.T) {
	s := newSite(t)
	s.commit(runningInstance()...)
	rev := s.view.Snapshot().Rev
	for _, tc := range []struct {
		lacks        auth.Permission
		method, path string
	}{
		{auth.GroupsView, "GET", "/api/configurations"},
		{auth.GroupsView, "GET", "/api/configurations/lobby"},
		{auth.GroupsCreate, "PUT", "/api/configurations/lobby"},
		{auth.GroupsUpdate, "PUT", "/api/configurations/lobby"},
		{auth.GroupsDelete, "DELETE", "/api/configurations/lobby"},
		{auth.InstancesView, "GET", "/api/instances"},
		{auth.GroupsStart, "POST", "/api/instances"},
		{auth.InstancesView, "GET", "/api/instances/abc123"},
		{auth.InstancesStop, "DELETE", "/api/instances/abc123"},
		{auth.InstancesStop, "PATCH", "/api/instances/abc123/lifecycle?target=stop"},
		{auth.GroupsStart, "PATCH", "/api/instances/abc123/lifecycle?target=start"},
		{auth.InstancesCommand, "POST", "/api/instances/abc123/execute"},
		{auth.InstancesConsole, "GET", "/api/instances/abc123/logs"},
		{auth.InstancesCommand, "PUT", "/api/instances/abc123/state"},
		{auth.NodesView, "GET", "/api/cluster/nodes"},
		{auth.NodesView, "GET", "/api/cluster/nodes/node-1"},
		{auth.TemplatesView, "GET", "/api/templates"},
		{auth.TemplatesView, "GET", "/api/templates/default/server"},
	} {
		s.denied = []auth.Permission{tc.lacks}
		s.want(403, string(tc.lacks), tc.method, tc.path, `{}`)
	}
	s.want(200, "", "GET", "/api/ping", "")
	if now := s.view.Snapshot().Rev; now != rev {
		t.Errorf("revision %d after %d", now, rev)
	}
	s.denied, s.self = []auth.Permission{auth.InstancesView, auth.InstancesCommand}, string(id)
	s.want(200, "", "PUT", "/api/instances/abc123/state", `{"state":"ONLINE"}`)
	s.want(200, "", "GET", "/api/instances/abc123", "")
	s.want(403, "", "GET", "/api/instances/other1", "")
}

func TestANumberThatIsNoneIsRefusedByName(t *testing.T) {
	s := newSite(t)
	for body, says := range map[string]string{
		`{"ramMB":"lots"}`: "ramMB must be a whole number, not string",
		`{"ramMB":1.5}`:    "ramMB must be a whole number, not number 1.5",
		`{"cpu":"1.5"}`:    "cpu must be a whole number",
		`{"cpu":true}`:     "cpu must be a whole number, not true or false",
		`{"availablePorts":{"min":"9999999999"}}`: "availablePorts.min must be a whole number",
		`{"additionalPorts":[{"port":"one"}]}`:    "port must be a whole number",
	} {
		s.want(400, says, "PUT", "/api/configurations/lobby", body)
	}
	s.want(404, "Configuration not found", "GET", "/api/configurations/lobby", "")
}
