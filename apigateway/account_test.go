package apigateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	notch = "069a79f4-44e9-4726-a5be-fca90e38aaf5"
	jeb   = "853c80ef-3c37-49fd-aa49-938b674adae6"
)

func TestPreferencesAreStoredUnchanged(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	bob := a.user("bob", "VIEWER")
	there := b.as(bob.token)
	eventually(t, there, "GET", "/api/v1/users/bob/preferences", 200)
	standard := there.do("GET", "/api/v1/users/bob/preferences", nil).want(200).is("theme", "system")
	if standard.header.Get("ETag") != "" {
		t.Error("a revision of nothing")
	}
	standard.is("defaultLandingPage", "/").is("sidebarExpanded", true).is("notifications.INSTANCE_CRASHED", true).is("notifications.PLAYER_CONNECTED", false)
	const sent = `{"theme":"dark","sidebar":{"collapsed":true,"order":[1,2.50,"<&>"]},"notifications":{}}`
	etag := bob.do("PUT", "/api/v1/users/bob/preferences", sent).want(200).header.Get("ETag")
	got := there.do("GET", "/api/v1/users/bob/preferences", nil).want(200)
	if same := sameJSON(t, sent, got.raw); !same || got.header.Get("ETag") != etag || etag == "" {
		t.Errorf("%s became %s, ETag %s", sent, got.raw, got.header.Get("ETag"))
	}
	there.do("PUT", "/api/v1/users/bob/preferences", `{"theme":"light"}`, "If-Match", `"1"`).want(412)
	there.do("PUT", "/api/v1/users/bob/preferences?dryRun=true", `{"theme":"light"}`).want(200).is("theme", "light")
	there.do("PUT", "/api/v1/users/bob/preferences", `{"theme":"light"}`, "If-Match", etag).want(200)
	before := a.revision()
	for _, bad := range []string{`{`, `[]`, `null`, `"x"`, ``, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + "}"} {
		bob.do("PUT", "/api/v1/users/bob/preferences", bad).want(400)
	}
	bob.do("PUT", "/api/v1/users/bob/preferences", `{"theme":"light"}`).want(200)
	bob.do("PUT", "/api/v1/users/bob/preferences", `{"x":"`+strings.Repeat("x", account.MaxPreferences)+`"}`).want(413)
	bob.do("GET", "/api/v1/users/admin/preferences", nil).want(403)
	bob.do("PUT", "/api/v1/users/admin/preferences", `{}`).want(403)
	a.do("GET", "/api/v1/users/nobody/preferences", nil).want(404)
	a.do("PUT", "/api/v1/users/nobody/preferences", `{}`).want(404)
	if keys := a.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	a.do("GET", "/api/v1/users/bob/preferences", nil).want(200).is("theme", "light")

	bob.do("PATCH", "/api/v1/users/bob", `{"username":"robert"}`).want(200)
	a.do("GET", "/api/v1/users/robert/preferences", nil).want(200).is("theme", "light")
	record, _ := a.view.Snapshot().Users.Get("robert")
	a.do("DELETE", "/api/v1/users/robert", nil).want(204)
	if _, err := store.Get(t.Context(), a.store, keys.Preferences(record.ID())); !errs.Is(err, errs.NotFound) {
		t.Errorf("they outlive their user: %v", err)
	}
}

// sameJSON reports whether two texts are equal JSON values.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func TestPlayerIsLinkedToOneUserOnly(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	bob, ann := a.user("bob", "VIEWER"), a.user("ann", "VIEWER")
	link := func(uuid string) string { return `{"uuid":"` + uuid + `","name":"Someone"}` }
	bob.do("PUT", "/api/v1/users/bob/minecraft", link(strings.ToUpper(strings.ReplaceAll(notch, "-", "")))).want(200).
		is("minecraftUuid", notch).is("minecraftName", "Someone")
	ann.do("PUT", "/api/v1/users/ann/minecraft", link(notch)).want(409)
	before := a.revision()
	bob.do("PUT", "/api/v1/users/bob/minecraft", link(notch)).want(200)
	for _, bad := range []string{link("not one"), link(notch + "0"), `{"uuid":1,"name":"x"}`} {
		bob.do("PUT", "/api/v1/users/bob/minecraft", bad).want(400)
	}
	bob.do("PUT", "/api/v1/users/bob/minecraft", `{"name":"x"}`).want(422).naming("uuid")
	bob.do("PUT", "/api/v1/users/bob/minecraft", `{"uuid":"`+jeb+`","name":""}`).want(422).naming("name")
	bob.do("PUT", "/api/v1/users/ann/minecraft", link(jeb)).want(403)
	bob.do("DELETE", "/api/v1/users/ann/minecraft", nil).want(403)
	bob.do("PUT", "/api/v1/users/bob/minecraft", link(jeb), "If-Match", `"1"`).want(412)
	bob.do("PUT", "/api/v1/users/bob/minecraft?dryRun=true", link(jeb)).want(200).is("minecraftUuid", jeb)
	bob.do("DELETE", "/api/v1/users/bob/minecraft?dryRun=true", nil).want(200).is("minecraftUuid", nil)
	a.do("PUT", "/api/v1/users/nobody/minecraft", link(jeb)).want(404)
	if keys := a.moved(before); len(keys) > 0 {
		t.Errorf("what changes nothing wrote something: %v", keys)
	}

	bob.do("PUT", "/api/v1/users/bob/minecraft", link(jeb)).want(200)
	ann.do("PUT", "/api/v1/users/ann/minecraft", link(notch)).want(200)
	bob.do("DELETE", "/api/v1/users/bob/minecraft", nil).want(204)
	a.do("GET", "/api/v1/users/bob", nil).want(200).is("minecraftUuid", nil).is("minecraftName", nil)
	a.do("PATCH", "/api/v1/users/ann", `{"username":"anna"}`).want(200).is("minecraftUuid", notch)
	bob.do("PUT", "/api/v1/users/bob/minecraft", link(notch)).want(409)
	a.do("DELETE", "/api/v1/users/anna", nil).want(204)
	bob.do("PUT", "/api/v1/users/bob/minecraft", link(notch)).want(200)

	var both sync.WaitGroup
	var statuses [2]int
	a.user("carl", "VIEWER")
	eventually(t, b.as(a.token), "GET", "/api/v1/users/carl", 200)
	both.Go(func() { statuses[0] = a.do("PUT", "/api/v1/users/bob/minecraft", link(jeb)).status })
	both.Go(func() { statuses[1] = b.as(a.token).do("PUT", "/api/v1/users/carl/minecraft", link(jeb)).status })
	both.Wait()
	if statuses != [2]int{200, 409} && statuses != [2]int{409, 200} {
		t.Errorf("two at once were answered with %v", statuses)
	}
}
