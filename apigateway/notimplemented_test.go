package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/compat/notimplemented"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestUnimplementedRoutesDoNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 1024})
	admin, _ := auth.RoleOf(s.view.Snapshot(), auth.RoleAdmin)
	s.commit(store.Create(keys.Role("ALL"), account.Role{Name: "ALL", Permissions: append([]account.Permission{auth.ClusterManage}, admin.Permissions...)}))
	s = s.user("all", "ALL")
	c, err := contractOf()
	if err != nil {
		t.Fatal(err)
	}
	before := s.revision()
	for _, r := range notimplemented.Routes() {
		path := strings.NewReplacer(":name", "lobby", ":id", "node-1", ":uuid", string(steve), "*path", "x").Replace(r.Path)
		got := s.do(r.Method, path, nil)
		switch {
		case r.Method != "GET", strings.HasSuffix(r.Path, "/journey"):
			if got.status != 501 || got.field("error.code") != "NOT_IMPLEMENTED" {
				t.Errorf("%s %s: %d %s", r.Method, path, got.status, got.raw)
			}
		case strings.ContainsAny(r.Path, ":*"):
			got.want(404)
		default:
			got.want(200)
		}
		if op := operationOf(c, r); op != nil && (op["x-later"] == true) != (got.status >= 400) {
			t.Errorf("%s %s: %d, and is it described as what is not there yet: %v", r.Method, path, got.status, op["x-later"])
		}
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("something was written: %v", keys)
	}
	for path, want := range map[string]string{
		"":                       `"data":[]`,
		"/platform":              `{"capabilityMetrics":{`,
		"/platform/manifests":    `{"modules":[]}`,
		"/platform/capabilities": `"modules":[]`,
		"/platform/extensions":   `{"extensions":[]}`,
		"/platform/extensions?target=server/paper":                      `{"extensions":[],"target":"server/paper"}`,
		"/platform/extensions/resolve?target=server/paper&version=1.21": `{"resolved":[],"runtimeVersion":"1.21","target":"server/paper"}`,
		"/platform/registry?q=x":                                        `{"modules":[],"registries":[]}`,
		"/platform/leaked-classloaders":                                 `{"pending":[],"totals":{},"tracking":false}`,
	} {
		if raw := s.do("GET", "/api/v1/modules"+path, nil).want(200).raw; !strings.Contains(raw, want) {
			t.Errorf("modules%s: %s, want %s", path, raw, want)
		}
	}
	s.do("GET", "/api/v1/backups", nil).want(200).is("directory", "").is("retentionCount", 0)
}
