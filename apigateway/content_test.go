package apigateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// contentOf maps permissions to read possibly secret content to a text in that content.
var contentOf = map[account.Permission]string{
	auth.InstancesFiles: "hush-file", auth.TemplatesContent: "hush-template", auth.GroupsEnv: "hush-env",
}

// without returns a caller with all permissions of ADMIN except some.
func (s *site) without(name string, lacking ...account.Permission) *site {
	s.t.Helper()
	admin, _ := auth.RoleOf(s.view.Snapshot(), auth.RoleAdmin)
	role := account.Role{Name: strings.ToUpper(name), Edition: account.PermissionEdition}
	role.Permissions = slices.DeleteFunc(slices.Clone(admin.Permissions), func(p account.Permission) bool { return slices.Contains(lacking, p) })
	s.commit(store.Create(keys.Role(role.Name), role))
	return s.user(name, role.Name)
}

// secretive returns a gateway whose group, template and instance have secret content.
func secretive(t *testing.T) *besieged {
	t.Helper()
	b := besiege(t)
	b.do("PUT", "/api/v1/templates/lobby/files/content?path=a", `{"content":"hush-template"}`).want(200)
	b.do("PATCH", "/api/v1/groups/lobby", `{"env":{"KEY":"hush-env"},"templates":["lobby"]}`).want(200)
	agent := b.node("node-2", fleet.Resources{MemoryMiB: 4096})
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/files/content"):
			_ = json.NewEncoder(w).Encode(client.FileContent{Text: "hush-file", Size: 9})
		case strings.HasSuffix(r.URL.Path, "/files"):
			_ = json.NewEncoder(w).Encode(client.Directory{Entries: []client.FileEntry{{Name: "hush-file", Size: 3}}})
		default:
			http.NotFound(w, r)
		}
	}
	agent.mu.Unlock()
	id := b.start("lobby")
	b.status(id, "node-2", fleet.Status{State: fleet.Online})
	for _, base := range []string{"/api/v1/services/:id", "/api/v1/instances/:id"} {
		b.there[base] = string(id)
	}
	return b
}

// reads returns requests that read everything, and dry runs that show the result.
func (b *besieged) reads() (out [][3]string) {
	queries := map[string][]string{
		"/api/v1/templates/:name/files/content":  {"path=a"},
		"/api/v1/templates/:name/files/download": {"path=a"},
		"/api/v1/templates/:name/search":         {"q=hush"},
		"/api/v1/templates/:name/diff":           {"", "path=a"},
		"/api/v1/services/:id/files/content":     {"path=a"},
		"/api/v1/instances/:id/files/content":    {"path=a"},
		"/api/v1/history/group/:name":            {"", fmt.Sprint("at=", b.view.Snapshot().Rev)},
	}
	for _, r := range b.routes() {
		if r.Method != http.MethodGet || reflect.DeepEqual(r.Demand, server.Ticketed) || r.Demand.Self() && len(r.Demand.Permissions()) == 0 {
			continue
		}
		asked, ok := queries[r.Path]
		if !ok {
			asked = []string{""}
		}
		for _, q := range asked {
			out = append(out, [3]string{"GET", b.target(r, q)})
		}
	}
	return append(out, [][3]string{
		{"POST", "/api/templates/default/lobby/export"},
		{"POST", "/api/commands/execute", `{"command":"config show lobby"}`},
		{"PUT", "/api/v1/groups/lobby?dryRun=true", `{"env":{"OTHER":"1"}}`},
		{"PATCH", "/api/v1/groups/lobby?dryRun=true", `{"env":{"OTHER":"1"}}`},
		{"PATCH", "/api/v1/groups/lobby", `{"motds":["hello"]}`},
		{"PUT", "/api/configurations/lobby?dryRun=true", `{}`},
		{"POST", "/api/v1/system/diagnostics/share", `{}`},
	}...)
}

// contents returns the requests whose responses had each kind of content.
func (b *besieged) contents(who *site) map[account.Permission][]string {
	found := map[account.Permission][]string{}
	for _, ask := range b.reads() {
		var body any
		if ask[2] != "" {
			body = ask[2]
		}
		r := who.do(ask[0], ask[1], body)
		for p, text := range contentOf {
			if strings.Contains(r.raw, text) || strings.Contains(ask[1], "export") && r.status == 200 && p == auth.TemplatesContent {
				found[p] = append(found[p], r.what)
			}
		}
	}
	return found
}

func TestNoRouteShowsContentWithoutItsPermission(t *testing.T) {
	t.Parallel()
	b := secretive(t)
	for p, routes := range b.contents(b.site) {
		if least := map[account.Permission]int{auth.InstancesFiles: 2, auth.TemplatesContent: 6, auth.GroupsEnv: 10}[p]; len(routes) < least {
			t.Errorf("%d routes show what takes %s: %q", len(routes), p, routes)
		}
	}
	for p := range contentOf {
		if shown := b.contents(b.without("no-"+strings.ReplaceAll(string(p), ".", "-"), p))[p]; len(shown) > 0 {
			t.Errorf("without %s it is shown by %q", p, shown)
		}
	}
	vera, public := b.user("val", "VIEWER"), (*site)(nil)
	public, _ = b.key(`{"name":"page","kind":"PUBLIC"}`)
	for name, who := range map[string]*site{"a VIEWER": vera, "a PUBLIC token": public} {
		who.do("GET", "/api/v1/groups/lobby", nil).want(200).is("env", nil).is("name", "lobby")
		who.do("GET", "/api/configurations/lobby", nil).want(200).is("environmentVariables", nil)
		who.do("GET", "/api/v1/templates/lobby/files", nil).want(200)
		for _, path := range []string{"/api/v1/templates/lobby/files/content?path=a", "/api/templates/default/lobby/files/a", b.path(server.Route{Path: "/api/v1/services/:id/files"}, -1, "")} {
			if r := who.do("GET", path, nil); r.status != 403 {
				t.Errorf("%s reads %s: %d", name, path, r.status)
			}
		}
	}
	named, _ := b.key(`{"name":"page","kind":"PUBLIC","scopes":["templates.view","templates.content"]}`)
	named.do("GET", "/api/v1/templates/lobby/files/content?path=a", nil).want(200).naming("hush-template")
}

func TestAPutOfACallerWhoCannotReadTheEnvironmentKeepsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"env": map[string]string{"KEY": "hush-env"}})
	blind := s.without("blind", auth.GroupsEnv)
	env := func(want map[string]string) {
		t.Helper()
		s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("env", want)
	}
	read := blind.do("GET", "/api/v1/groups/lobby", nil).want(200).raw
	blind.do("PUT", "/api/v1/groups/lobby", read).want(200).is("env", nil)
	env(map[string]string{"KEY": "hush-env"})
	read = blind.do("GET", "/api/configurations/lobby", nil).want(200).raw
	blind.do("PUT", "/api/configurations/lobby", read).want(204)
	blind.do("PUT", "/api/configurations/lobby", `{}`).want(204)
	env(map[string]string{"KEY": "hush-env"})
	blind.do("PATCH", "/api/v1/groups/lobby", `{"env":{"MORE":"1"}}`).want(200).is("env", nil)
	env(map[string]string{"KEY": "hush-env", "MORE": "1"})
	blind.do("PUT", "/api/v1/groups/lobby", `{"env":{"ONLY":"1"}}`).want(200).is("env", nil)
	env(map[string]string{"ONLY": "1"})
	s.do("PUT", "/api/v1/groups/lobby", `{}`).want(200).is("env", map[string]string{})
}

// Roles and tokens from before the separate content permissions keep the content that their holder
// could change or command, and lose content that the holder could only read.
func TestRolesAndTokensOfEarlierVersionsKeepTheContentTheyCouldChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	looks := []account.Permission{auth.GroupsView, auth.TemplatesView, auth.InstancesView, auth.InstancesConsole}
	changes := append(slices.Clone(looks), auth.GroupsUpdate, auth.TemplatesUpdate, auth.InstancesCommand)
	s.commit(
		store.Create(keys.Role("VIEWER"), account.Role{Name: "VIEWER", Permissions: looks}),
		store.Create(keys.Role("EDITOR"), account.Role{Name: "EDITOR", Permissions: changes}),
	)
	has := func(who *site) (out []string) {
		list, _ := who.do("GET", "/api/v1/auth/me", nil).want(200).field("permissions").([]any)
		for _, p := range list {
			if contentOf[account.Permission(fmt.Sprint(p))] != "" {
				out = append(out, fmt.Sprint(p))
			}
		}
		slices.Sort(out)
		return out
	}
	all := []string{"groups.env", "instances.files", "templates.content"}
	if got := has(s.user("vera", "VIEWER")); len(got) != 0 {
		t.Errorf("a stored VIEWER has %v", got)
	}
	eddy := s.user("eddy", "EDITOR")
	if got := has(eddy); !slices.Equal(got, all) {
		t.Errorf("a stored role that changes has %v", got)
	}
	s.do("PATCH", "/api/v1/roles/EDITOR", map[string]any{"permissions": changes}).want(200)
	if got := has(eddy); len(got) != 0 {
		t.Errorf("the role was written without them and has %v", got)
	}

	token, made := s.key(`{"name":"ci","scopes":["templates.view","templates.update"]}`)
	if got := has(token); len(got) != 0 {
		t.Errorf("a token has more than its scopes: %v", got)
	}
	id := fmt.Sprint(made.field("id"))
	// The gateway may record the use of the token at the same time.
	await.That(t, "the token is stored as an earlier version did", func() string {
		record, _ := s.view.Snapshot().APITokens.Get(id)
		old := *record
		old.Edition = 0
		rev, err := s.store.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.APIToken(id), old, record.ModRev)}})
		if err == nil {
			_, err = s.view.WaitRev(t.Context(), rev)
		}
		return await.Unless(err == nil, "%v", err)
	})
	if got := has(token); !slices.Equal(got, []string{"templates.content"}) {
		t.Errorf("an earlier token that changes templates has %v", got)
	}
}
