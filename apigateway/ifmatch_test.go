package apigateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/openapitest"
)

// revisionless has routes that change objects without a revision for clients, with the reason.
var revisionless = map[string]string{
	"DELETE /api/v1/workloads/credentials/:id":           "tokens of an instance are many, of the moment",
	"DELETE /api/v1/workloads/credentials/instances/:id": "tokens of an instance are many, of the moment",
	"DELETE /api/v1/services/:id/backups/:backup":        "a backup never changes",
	"DELETE /api/v1/instances/:id/backups/:backup":       "a backup never changes",
	"DELETE /api/v1/templates/:name/versions/:hash":      "a version never changes",
	"DELETE /api/v1/users/:name/sessions":                "a session is ended or not",
	"DELETE /api/v1/users/:name/sessions/:id":            "a session is ended or not",
	"DELETE /api/v1/users/:name/second-factor":           "a user has a second factor or not",
	"PATCH /api/v1/allocations/:id":                      "allocations of an instance share one record",
	"DELETE /api/v1/allocations/:id":                     "allocations of an instance share one record",
	"DELETE /api/v1/services/:id/move":                   "a move is cancelled or not",
	"DELETE /api/v1/instances/:id/move":                  "a move is cancelled or not",
	"DELETE /s/:id":                                      "a share never changes",
	"DELETE /api/instances/:id":                          "this dialect shows no revision of an instance, and a stop is no change of what was read",
	"PATCH /api/instances/:id/lifecycle":                 "this dialect shows no revision of an instance",
	"PUT /api/instances/:id/state":                       "a heartbeat is no change of what was read",
}

// replaced has queries and bodies of routes that are validated before the revision.
var replaced = map[string][2]string{
	"PUT /api/v1/users/:name/minecraft":           {"", `{"uuid":"069a79f4-44e9-4726-a5be-fca90e38aaf5","name":"Notch"}`},
	"PUT /api/v1/templates/:name/files/content":   {"path=a", `{"content":"2"}`},
	"PUT /api/v1/services/:id/files/content":      {"path=a", `{"content":"2"}`},
	"PUT /api/v1/instances/:id/files/content":     {"path=a", `{"content":"2"}`},
	"DELETE /api/v1/services/:id/files":           {"path=a", ""},
	"DELETE /api/v1/instances/:id/files":          {"path=a", ""},
	"DELETE /api/v1/templates/:name/files":        {"path=a", ""},
	"PATCH /api/v1/roles/:name":                   {"", `{"permissions":[]}`},
	"PUT /api/v1/templates/:name/variables":       {"", `[]`},
	"PUT /api/v1/applied/:kind/:name":             {"", `{"document":{}}`},
	"PUT /api/v1/networks/:name":                  {"", `{"lobbyGroup":"lobby"}`},
	"PATCH /api/v1/admin/cors/origins":            {"", `{"action":"add","origin":"https://a.example"}`},
	"PATCH /api/v1/admin/network/allowed-subnets": {"", `{"action":"add","cidr":"127.0.0.0/8"}`},
}

func TestStaleIfMatchIsRefused(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	b.there["/api/v1/admin/tokens/:id"], _ = b.do("POST", "/api/v1/admin/tokens", `{"nodeId":"two"}`).want(201).field("tokenId").(string)
	b.there["/api/v1/api-tokens/:id"], _ = b.do("POST", "/api/v1/api-tokens", `{"name":"x"}`).want(201).field("id").(string)
	b.do("PUT", "/api/v1/templates/lobby/files/content?path=c", `{"content":"1"}`).want(200) // the current version is now another
	b.do("PUT", "/api/v1/templates/lobby/files/content?path=b&rehash=false", `{"content":"1"}`).want(200)
	before := b.revision()
	for _, r := range b.routes() {
		name := r.Method + " " + r.Path
		switch r.Method {
		case http.MethodGet:
			continue
		case http.MethodPost:
			b.comparesAsDescribed(r, "If-Match", !r.Unmatched)
			continue
		}
		b.comparesAsDescribed(r, "If-None-Match", r.Making)
		with, known := replaced[name]
		if !known {
			with[1] = b.body(r)
		}
		got := b.send(r, b.path(r, -1, "")+"?"+with[0], strings.NewReader(with[1]), "If-Match", `"1"`)
		reason, none := revisionless[name]
		switch op := operationOf(b.contract, r); {
		case got.status == http.StatusNotImplemented:
			continue
		case none != r.Unmatched:
			t.Errorf("%s has a revision: %v; why not: %q", name, !r.Unmatched, reason)
		case none:
			got.oneOf(http.StatusBadRequest)
			got.naming("If-Match")
		case got.status != http.StatusPreconditionFailed:
			t.Errorf("%s, which moved since: %d %.300s", name, got.status, got.raw)
		case !takesHeader(b.contract, op, "If-Match"):
			t.Errorf("%s compares If-Match, and is not described so", name)
		}
	}
	if keys := b.moved(before); len(keys) > 0 {
		t.Errorf("what moved was written over: %v", keys)
	}
}

// comparesAsDescribed checks that the document says whether a route supports a condition, and that a
// route without support rejects it.
func (b *besieged) comparesAsDescribed(r server.Route, header string, compares bool) {
	b.t.Helper()
	if described := takesHeader(b.contract, operationOf(b.contract, r), header); described != compares {
		b.t.Errorf("%s %s is described as comparing %s: %v, and does: %v", r.Method, r.Path, header, described, compares)
	}
	if !compares {
		got := b.send(r, b.path(r, -1, ""), strings.NewReader(b.body(r)), header, "*")
		got.oneOf(http.StatusBadRequest)
		got.naming(header)
	}
}

// takesHeader reports whether an operation documents a header.
func takesHeader(c *openapitest.Contract, op object, header string) bool {
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		if c.Resolved(p)["name"] == header {
			return true
		}
	}
	return false
}

func TestAVersionOfTheSettingsIsToldWithItsOwnETag(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const subnets, config = "/api/v1/admin/network/allowed-subnets", "/api/v1/cluster/config"
	etags := func(r *reply) string { return r.want(200).header.Get("ETag") }
	if etag := etags(s.do("PATCH", subnets, `{"action":"remove","cidr":"10.9.0.0/16"}`)); etag != "" {
		t.Errorf("before there is a version, its ETag is %s", etag)
	}
	allow := func(subnet string) clusterops.ConfigWritten {
		t.Helper()
		done, err := s.gateway.operate.WriteConfig(t.Context(), txn.Actor{User: "admin"}, clusterops.ConfigWrite{
			Change: func(p cluster.ClusterSettings) (cluster.ClusterSettings, error) {
				p.AllowedSubnets = &[]string{subnet}
				return p, nil
			},
			Bearable: func(cluster.ClusterSettings) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	first := allow("127.0.0.0/8")
	other := allow("127.0.0.0/9") // a second change before the response to the first is written
	if first.After.ModRev == 0 || first.After.ModRev != other.Before.ModRev || first.After.ModRev >= other.After.ModRev {
		t.Errorf("they were written at %d and then %d, of %d", first.After.ModRev, other.After.ModRev, other.Before.ModRev)
	}
	changed := etags(s.do("PATCH", subnets, `{"action":"add","cidr":"10.9.0.0/16"}`))
	same := etags(s.do("PATCH", subnets, `{"action":"add","cidr":"10.9.0.0/16"}`))
	if read := etags(s.do("GET", config, nil)); changed != read || same != read {
		t.Errorf("the change was told with %s, and then %s; it is read with %s", changed, same, read)
	}
}

func TestAPutCanSayWhetherThereMayBeOne(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.group("lobby", nil)
	for _, c := range []struct{ path, body string }{
		{"/api/v1/groups/one", `{"memoryMb":64}`},
		{"/api/configurations/two", `{"ramMB":64}`},
		{"/api/v1/secrets/one", creates["PUT /api/v1/secrets/:name"]},
		{"/api/v1/quotas/one", creates["PUT /api/v1/quotas/:name"]},
		{"/api/v1/bindings/one", creates["PUT /api/v1/bindings/:name"]},
		{"/api/v1/notices/one", creates["PUT /api/v1/notices/:name"]},
		{"/api/v1/schedules/one", creates["PUT /api/v1/schedules/:name"]},
		{"/api/v1/overlays/one", creates["PUT /api/v1/overlays/:name"]},
		{"/api/v1/templates/lobby/files/content?path=one", `{"content":"1"}`},
		{"/api/v1/template-sources/one", creates["PUT /api/v1/template-sources/:name"]}, // last, because its status changes at any time
	} {
		put := func(status int, header ...string) *reply {
			t.Helper()
			return s.do("PUT", c.path, c.body, header...).want(status)
		}
		since := s.revision()
		put(412, "If-Match", "*")
		put(400, "If-None-Match", `"1"`)
		put(400, "If-None-Match", "*", "If-Match", "*").naming("one of them")
		if keys := s.moved(since); len(keys) > 0 {
			t.Errorf("%s was refused, and wrote %v", c.path, keys)
		}
		made := s.do("PUT", c.path, c.body, "If-None-Match", "*")
		if made.oneOf(200, 201, 204); made.status >= 300 {
			continue
		}
		put(412, "If-None-Match", "*").naming("already exists")
		again := s.do("PUT", c.path, c.body, "If-Match", "*")
		again.oneOf(200, 204)
	}
	s.do("PUT", "/api/v1/groups/one?dryRun=true", `{"memoryMb":65}`, "If-None-Match", "*").want(412)
	s.do("PUT", "/api/v1/groups/three?dryRun=true", `{"memoryMb":65}`, "If-Match", "*").want(412)
}

func TestOfSeveralConditionsTheFirstIsNotTakenForAll(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	etag := s.do("GET", "/api/v1/groups/lobby", nil).want(200).header.Get("ETag")
	for _, second := range []string{`"1"`, etag} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.url+"/api/v1/groups/lobby", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + s.token}, "If-Match": {etag, second}}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("with %s too: %s", second, resp.Status)
		}
	}
}

func TestCurrentIfMatchIsAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("gone", fleet.Resources{MemoryMiB: 1024, CPU: 100})
	s.loseNode("gone")
	s.node("n1", fleet.Resources{MemoryMiB: 1 << 16, CPU: 1600})
	s.group("lobby", nil)
	ended := s.start("lobby")
	s.status(ended, "n1", fleet.Status{State: fleet.Stopped})
	token := s.do("POST", "/api/v1/admin/tokens", `{"nodeId":"two"}`).want(201)
	id, _ := token.field("tokenId").(string)
	s.do("POST", "/api/v1/catalog/paper/versions", creates["POST /api/v1/catalog/:platform/versions"]).want(201)
	other := s.do("POST", "/api/v1/catalog/velocity/versions", creates["POST /api/v1/catalog/:platform/versions"]).want(201)
	s.do("POST", "/api/v1/cluster/config", creates["POST /api/v1/cluster/config"]).want(201)
	etag := func(path string) string { return s.do("GET", path, nil).want(200).header.Get("ETag") }
	const version = "/api/v1/catalog/paper/versions/1.21"
	at := s.do("PUT", version+"/recommended", nil).want(200)
	for _, change := range []struct {
		method, path, etag string
		body               any
		status             int
	}{
		{"DELETE", "/api/v1/services/" + string(ended), etag("/api/v1/services/" + string(ended)), nil, 204},
		{"DELETE", "/api/v1/nodes/gone", etag("/api/v1/nodes/gone"), nil, 204},
		{"DELETE", "/api/v1/admin/tokens/" + id, token.header.Get("ETag"), nil, 204},
		{"PATCH", "/api/v1/admin/cors/origins", etag("/api/v1/cluster/config"), `{"action":"add","origin":"https://a.example"}`, 200},
		{"PATCH", version, at.header.Get("ETag"), `{"category":"PROXY"}`, 200},
		{"DELETE", "/api/v1/catalog/velocity/versions/1.21", other.header.Get("ETag"), nil, 204},
	} {
		s.do(change.method, change.path, change.body, "If-Match", change.etag).want(change.status)
	}
}
