package apigateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

// resources returns the RESOURCE_CHANGED events of a stream as "<kind> <name> <action>", and their IDs.
func resources(said *await.Text) (all, ids []string) {
	id := ""
	for line := range strings.Lines(said.String()) {
		line = strings.TrimSuffix(line, "\n")
		if next, ok := strings.CutPrefix(line, "id: "); ok {
			id = next
		}
		var e struct{ Type, Kind, Name, Action string }
		data, ok := strings.CutPrefix(line, "data: ")
		if ok && json.Unmarshal([]byte(data), &e) == nil && e.Type == "RESOURCE_CHANGED" {
			all, ids = append(all, e.Kind+" "+e.Name+" "+e.Action), append(ids, id)
		}
	}
	return all, ids
}

func TestEveryChangeWithoutATypeOfItsOwnIsToldToWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	viewer := b.as(a.user("vera", "VIEWER").token)
	eventually(t, viewer, "GET", "/api/v1/groups", 200)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	b.revisionSeen() // including the login of vera
	ofAdmin, ofViewer := b.stream("/api/v1/events/stream"), viewer.stream("/api/v1/events/stream")
	before := a.revision()

	a.do("POST", "/api/v1/roles", `{"name":"MAKER","permissions":["nodes.view"]}`).want(201)
	a.do("POST", "/api/v1/users", `{"username":"mike","password":"correct horse battery","role":"MAKER"}`).want(201)
	token := fmt.Sprint(a.do("POST", "/api/v1/api-tokens", `{"name":"x"}`).want(201).field("id"))
	a.do("PUT", "/api/v1/quotas/all", `{"selector":{"a":"b"},"limit":{"instances":5}}`).want(201)
	a.do("PUT", "/api/v1/bindings/mods", `{"role":"VIEWER","subjects":["mike"]}`).want(201)
	a.do("PUT", "/api/v1/secrets/db", `{"value":"hush-db"}`).want(201)
	a.do("PUT", "/api/v1/template-sources/repo", `{"kind":"git","url":"https://x.example/r.git"}`).want(201)
	a.do("POST", "/api/v1/catalog/PAPER/versions", map[string]any{"version": "1", "downloadUrl": "https://x.example/1", "sha256": strings.Repeat("ab", 32)}).want(201)
	a.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"ssd":"1"}}`).want(200)
	a.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
	a.do("POST", "/api/v1/auth/keys/rotate", nil).want(200)
	a.do("PATCH", "/api/v1/users/mike", `{"role":"VIEWER"}`).want(200)
	for _, path := range []string{"users/mike", "roles/MAKER", "api-tokens/" + token, "quotas/all", "bindings/mods", "secrets/db", "template-sources/repo", "catalog/PAPER/versions/1"} {
		if r := a.do("DELETE", "/api/v1/"+path, nil); r.status/100 != 2 {
			t.Fatalf("%s: %s", path, r.raw)
		}
	}
	a.group("last", nil)
	comes(t, ofAdmin, `"groupName":"last"`, "hush-db")
	comes(t, ofViewer, `"groupName":"last"`, "mike", "MAKER", "db", token, "jwt")

	want := []string{
		"role MAKER create", "user mike create", "api-token " + token + " create", "quota all create", "binding mods create", "secret db create", "template-source repo create",
		"catalog PAPER 1 add", "node node-1 update", "signing-keys jwt rotate-keys", "user mike update",
		"user mike delete", "role MAKER delete", "api-token " + token + " delete", "quota all delete", "binding mods delete", "secret db delete", "template-source repo delete", "catalog PAPER 1 remove",
	}
	got, ids := resources(ofAdmin)
	if !slices.Equal(got, want) {
		t.Fatalf("the administrator was told\n%q, want\n%q", got, want)
	}
	may := slices.DeleteFunc(slices.Clone(want), func(what string) bool {
		kind, _, _ := strings.Cut(what, " ")
		return !slices.Contains([]string{"quota", "catalog", "template-source", "node"}, kind)
	})
	if got, _ := resources(ofViewer); !slices.Equal(got, may) {
		t.Errorf("the viewer was told\n%q, want\n%q", got, may)
	}

	// On another gateway, the stream resumes after any of them with the same IDs.
	for _, from := range []int{-1, 0, 7, len(ids) - 1} {
		id := fmt.Sprint(before)
		if from >= 0 {
			id = ids[from]
		}
		again := a.stream("/api/v1/events/stream?lastSequence=" + id)
		comes(t, again, `"groupName":"last"`, "RESYNC_REQUIRED")
		if rest, same := resources(again); !slices.Equal(rest, want[from+1:]) || !slices.Equal(same, ids[from+1:]) {
			t.Errorf("after %s came\n%q as %q, want\n%q as %q", id, rest, same, want[from+1:], ids[from+1:])
		}
	}
}
