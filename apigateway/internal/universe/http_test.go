package universe

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/spawn"
)

// direct performs operations as plain transactions, without the checks that need
// the whole gateway.
type direct struct{ *world }

func (d direct) PutGroup(_ context.Context, _ string, name fleet.GroupName, make func(*fleet.GroupSpec) (fleet.GroupSpec, error)) error {
	if err := name.Validate(); err != nil {
		return err
	}
	var old *fleet.GroupSpec
	g, ok := d.view.Snapshot().Groups.Get(name)
	if ok {
		old = &g.Spec
	} else {
		g = &fleet.Group{Name: name}
	}
	spec, err := make(old)
	if err != nil {
		return err
	}
	if problems := spec.Validate(); len(problems) > 0 {
		return problems[0]
	}
	next := *g
	next.Spec = spec
	next.Revision++
	d.commit(store.Replace(store.GroupKey(name), next, g.ModRev))
	return nil
}

func (d direct) DeleteGroup(_ context.Context, _ string, name fleet.GroupName) error {
	g, ok := d.view.Snapshot().Groups.Get(name)
	if !ok {
		return errs.New(errs.NotFound, "no group")
	}
	next := *g
	next.Deleting = true
	d.commit(store.Replace(store.GroupKey(name), next, g.ModRev))
	return nil
}

func (d direct) CreateInstance(_ context.Context, by string, name fleet.GroupName) (fleet.InstanceID, error) {
	s := d.view.Snapshot()
	g, ok := s.Groups.Get(name)
	if !ok {
		return "", errs.New(errs.NotFound, "no group")
	}
	if g.Spec.Resources.MemoryMiB > 8192 {
		return "", errs.New(errs.Exhausted, "no node could hold it")
	}
	sp := spawn.New(s, at, rand.New(rand.NewPCG(1, 2)))
	b := sp.Fresh(g, spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested, By: by}, "", nil)
	d.perform(sp, b)
	return b.Intent.ID, nil
}

func (d direct) perform(sp *spawn.Spawner, b spawn.Birth) {
	for _, txn := range sp.Txns([]spawn.Birth{b}, nil, nil, store.DefaultMaxOps) {
		rev, err := d.store.Commit(d.t.Context(), txn)
		if err != nil {
			d.t.Fatal(err)
		}
		if _, err := d.view.WaitRev(d.t.Context(), rev); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d direct) intent(id fleet.InstanceID, edit func(*fleet.Intent)) error {
	i, _ := d.view.Snapshot().Instances.Get(id)
	next := i.Intent
	edit(&next)
	d.commit(store.Replace(store.IntentKey(id), next, i.Intent.ModRev))
	return nil
}

func (d direct) StopInstance(_ context.Context, by string, id fleet.InstanceID) error {
	return d.intent(id, func(i *fleet.Intent) {
		i.Desired, i.Stop = fleet.DesiredStopped, &fleet.StopRequest{By: by, At: at, Reason: fleet.ReasonStopRequested}
	})
}

func (d direct) StartInstance(_ context.Context, by string, id fleet.InstanceID) error {
	s := d.view.Snapshot()
	i, _ := s.Instances.Get(id)
	g, _ := s.Groups.Get(i.Intent.Group)
	sp := spawn.New(s, at, rand.New(rand.NewPCG(1, 2)))
	b, err := sp.Again(g, i, spawn.Cause{Reason: fleet.ReasonRequested, By: by})
	if err != nil {
		return err
	}
	d.perform(sp, b)
	return nil
}

func (d direct) RestartInstance(_ context.Context, _ string, id fleet.InstanceID) error {
	return d.intent(id, func(i *fleet.Intent) { i.Desired, i.RestartPending = fleet.DesiredStopped, true })
}

// node stands for the far side of the network.
type node struct {
	heard []string
	beats []Heartbeat
	lines []string
}

func (n *node) Command(_ context.Context, i *fleet.Instance, line string) error {
	if i.State() != fleet.Online {
		return errs.New(errs.Conflict, "instance %s does not run", i.Intent.ID)
	}
	n.heard = append(n.heard, line)
	return nil
}

func (n *node) Tail(_ context.Context, _ *fleet.Instance, lines int) ([]string, int64, error) {
	return n.lines[max(0, len(n.lines)-lines):], int64(len(n.lines)), nil
}

func (n *node) Heartbeat(_ context.Context, _ *fleet.Instance, h Heartbeat) error {
	n.beats = append(n.beats, h)
	return nil
}

// site is the dialect on a listener.
type site struct {
	*world
	node *node
	url  string
	now  time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{world: newWorld(t), node: &node{}, now: at}
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	New(Config{
		View: s.view, Operations: direct{s.world}, Agents: s.node, NodeID: "node-1", ClusterName: "test",
		By: func(*gin.Context) string { return "ann" }, Now: func() time.Time { return s.now },
	}).Mount(e, e)
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// reply is an answer; Body is its JSON.
type reply struct {
	status int
	header http.Header
	body   any
}

func (r reply) field(name string) any {
	m, _ := r.body.(map[string]any)
	return m[name]
}

func (s *site) do(method, path, body string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
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

// want checks a status and, where it is an error, the envelope and a part of its message.
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
	s.want(204, "", "PUT", "/api/configurations/lobby", `{}`)
	s.want(204, "", "PUT", "/api/configurations/huge", `{"ramMB":100000}`)
	s.want(400, "Configuration not found", "POST", "/api/instances", `{"configurationName":"nobody"}`)
	s.want(400, "configurationName", "POST", "/api/instances", `{}`)
	s.want(400, "", "POST", "/api/instances", ``)
	s.want(503, "no node could hold it", "POST", "/api/instances", `{"configurationName":"huge"}`)
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
	s.want(200, "", "PATCH", "/api/instances/"+id+"/lifecycle?target=restart", "")
	s.want(200, "", "PATCH", "/api/instances/"+id+"/lifecycle?target=stop", "")
	s.want(204, "", "DELETE", "/api/configurations/lobby", "")
	s.want(400, "Configuration not found", "PATCH", "/api/instances/"+id+"/lifecycle?target=start", "")
}

func TestTheListHidesAndAllShowsEverything(t *testing.T) {
	s := newSite(t)
	s.commit(running()...)
	i, _ := s.view.Snapshot().Instances.Get(id)
	s.now = at.Add(time.Hour)
	if r := s.want(200, "", "GET", "/api/instances", ""); len(r.body.([]any)) != 1 {
		t.Errorf("running: %v", r.body)
	}
	s.commit(store.Replace(store.StatusKey(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Crashed, ChangedAt: at, FinishedAt: at}, i.Status.ModRev))
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
	s.commit(running()...)
	s.node.lines = []string{"one", "two\x1b[0m", "three"}
	if r := s.want(200, "", "POST", "/api/instances/abc123/execute", `{"command":"say $HOME \\ ^A"}`); r.field("message") != "Command sent to abc123" {
		t.Errorf("%v", r.body)
	}
	if !slices.Equal(s.node.heard, []string{`say $HOME \ ^A`}) {
		t.Errorf("heard %q", s.node.heard)
	}
	s.want(400, "command", "POST", "/api/instances/abc123/execute", `{}`)
	s.want(404, "Instance not found", "POST", "/api/instances/nobody/execute", `{"command":"x"}`)
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
	s.commit(running()...)
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
	rev := s.commit(store.Replace(store.StatusKey(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Stopped, ChangedAt: at}, i.Status.ModRev)).Rev
	s.want(409, "abc123 is STOPPED", "PUT", "/api/instances/abc123/state", `{"state":"ONLINE"}`)
	if now := s.view.Snapshot().Rev; len(s.node.beats) != 1 || now != rev {
		t.Errorf("a late heartbeat left a trace: %+v, revision %d after %d", s.node.beats, now, rev)
	}
}

func TestNodesAndTemplates(t *testing.T) {
	s := newSite(t)
	s.commit(append(running(), store.Create(store.TemplateHeadKey(fleet.TemplateRef{Group: "default", Name: "server"}),
		fleet.TemplateHead{TemplateRef: fleet.TemplateRef{Group: "default", Name: "server"}, Digest: "d1"}))...)
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
