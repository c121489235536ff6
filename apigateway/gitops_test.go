package apigateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/catalog"
	"github.com/orreryhq/orrery/apigateway/internal/api/groups"
	"github.com/orreryhq/orrery/apigateway/internal/background/gitops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// declare writes a declared group as templatesvc does. An empty spec declares its removal.
func (s *site) declare(source, group, spec string) {
	s.t.Helper()
	key := keys.DeclaredGroup(source, fleet.GroupName(group))
	old, err := store.Get(s.t.Context(), s.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		s.t.Fatal(err)
	}
	d := compose.DeclaredGroup{Group: fleet.GroupName(group), Declaration: compose.Declaration{
		Source: source, Spec: json.RawMessage(spec), File: "groups/" + group + ".yaml", Removed: spec == "",
	}}
	s.commit(store.Replace(key, d, old.ModRev))
}

// stands waits until the latest record of a declared group is in a state.
func (s *site) stands(source, group string, want compose.DeclaredState) (st compose.DeclaredStatus) {
	s.t.Helper()
	await.That(s.t, group+" of "+source+" "+string(want), func() string {
		d, err := store.Get(s.t.Context(), s.store, keys.DeclaredGroup(source, fleet.GroupName(group)))
		if err == nil {
			st, err = store.Get(s.t.Context(), s.store, keys.DeclaredStatus(source, fleet.GroupName(group)))
		}
		return await.Unless(err == nil && st.Observed == d.ModRev && st.State == want, "%+v, %v", st, err)
	})
	return st
}

// look writes a source's status as templatesvc does.
func (s *site) look(name string, state content.SourceState) {
	s.t.Helper()
	source, err := store.Get(s.t.Context(), s.store, keys.TemplateSource(name))
	if err != nil {
		s.t.Fatal(err)
	}
	s.commit(store.Create(keys.TemplateSourceStatus(name), content.SourceStatus{Name: name, Observed: source.ModRev, State: state}))
}

// often makes the site check declared groups continuously, not once a minute.
func (s *site) often() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		gitops.New(gitops.Config{
			Store: s.store, Operations: s.gateway.operate, ReadGroup: groups.DecodePut, ReadVersion: catalog.DecodeVersion, Every: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		}).Run(ctx)
	}()
	s.t.Cleanup(func() { cancel(); <-done })
}

const declaring = `{"kind":"git","url":"https://host/r.git","declares":true}`

func TestADeclaredGroupIsMadeKeptAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201).is("declares", true)
	s.declare("repo", "lobby", `{"command":"run","maxInstances":3}`)
	s.stands("repo", "lobby", compose.DeclaredInSync)
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("maxInstances", 3)

	// Changes by users are reverted.
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":9}`).want(200)
	await.That(t, "it is put back", func() string {
		r := s.do("GET", "/api/v1/groups/lobby", nil).want(200)
		return await.Unless(r.field("maxInstances") == 3.0, "%s", r.raw)
	})
	s.do("GET", "/api/v1/audit", nil).want(200).naming("gitops repo")

	// An invalid file changes nothing and is reported by name.
	s.declare("repo", "lobby", `{"command":"run","maxInstances":4,"colour":"red"}`)
	if st := s.stands("repo", "lobby", compose.DeclaredFailed); st.Message == "" {
		t.Errorf("%+v", st)
	}
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("maxInstances", 3)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming("groups/lobby.yaml").naming("colour").naming("FAILED")

	// Deleting the file makes the enforcer remove the group.
	s.declare("repo", "lobby", "")
	s.stands("repo", "lobby", compose.DeclaredRemoving)
	g, err := store.Get(t.Context(), s.store, keys.Group("lobby"))
	if err != nil || !g.Deleting {
		t.Fatalf("%+v, %v", g, err)
	}
	s.commit(store.Remove(keys.Group("lobby"), g.ModRev)) // as the enforcer does at the end
	s.stands("repo", "lobby", compose.DeclaredRemoved)
}

func TestADeclarationTouchesNoGroupOfAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	for _, name := range []string{"one", "two"} {
		s.do("PUT", "/api/v1/template-sources/"+name, declaring).want(201)
	}
	s.do("POST", "/api/v1/groups", `{"name":"mine","command":"run","maxInstances":1}`).want(201)
	s.declare("one", "mine", `{"command":"run","maxInstances":5}`)
	s.stands("one", "mine", compose.DeclaredConflict)
	s.look("one", content.SourceInSync)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming(`"state":"FAILED","message":"1 of 1 items are not in sync, the first is group mine, CONFLICT: the group was created through the API`)
	s.declare("one", "mine", "")
	s.stands("one", "mine", compose.DeclaredRemoved)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming(`"state":"IN_SYNC"`)
	s.do("GET", "/api/v1/groups/mine", nil).want(200).is("maxInstances", 1)

	s.declare("one", "shared", `{"command":"run","maxInstances":1}`)
	s.stands("one", "shared", compose.DeclaredInSync)
	s.declare("two", "shared", `{"command":"run","maxInstances":2}`)
	s.stands("two", "shared", compose.DeclaredConflict)
	s.do("GET", "/api/v1/groups/shared", nil).want(200).is("maxInstances", 1)

	// A deleted source no longer owns groups, and its records have no effect.
	s.do("DELETE", "/api/v1/template-sources/one", nil).want(204)
	s.stands("two", "shared", compose.DeclaredInSync)
	s.do("GET", "/api/v1/groups/shared", nil).want(200).is("maxInstances", 2)
	s.declare("one", "shared", "")
	s.declare("two", "last", `{"command":"run"}`) // processed after the others
	s.stands("two", "last", compose.DeclaredInSync)
	s.do("GET", "/api/v1/groups/shared", nil).want(200)
}

// declareEntry writes a declared catalog entry as templatesvc does. An empty spec declares its removal.
func (s *site) declareEntry(source, name, spec string) {
	s.t.Helper()
	key := keys.DeclaredCatalogEntry(source, name)
	old, err := store.Get(s.t.Context(), s.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		s.t.Fatal(err)
	}
	platform, version, _ := strings.Cut(name, "/")
	d := compose.DeclaredCatalog{Platform: platform, Version: version, Declaration: compose.Declaration{
		Source: source, Spec: json.RawMessage(spec), File: "catalog.yaml", Removed: spec == "",
	}}
	s.commit(store.Replace(key, d, old.ModRev))
}

// entryStands waits until the latest record of a declared entry is in a state.
func (s *site) entryStands(source, name string, want compose.DeclaredState) (st compose.DeclaredStatus) {
	s.t.Helper()
	await.That(s.t, name+" of "+source+" "+string(want), func() string {
		d, err := store.Get(s.t.Context(), s.store, keys.DeclaredCatalogEntry(source, name))
		if err == nil {
			st, err = store.Get(s.t.Context(), s.store, keys.DeclaredCatalogStatus(source, name))
		}
		return await.Unless(err == nil && st.Observed == d.ModRev && st.State == want, "%+v, %v", st, err)
	})
	return st
}

// entry returns the spec of a version.
func entry(url string) string {
	return `{"downloadUrl":"https://host/` + url + `","sha256":"` + strings.Repeat("ab", 32) + `","category":"server"}`
}

func TestADeclaredCatalogIsMadeKeptAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	s.declareEntry("repo", "PAPER", `{"recommended":"2"}`) // before its versions
	s.declareEntry("repo", "PAPER/1", entry("one"))
	s.declareEntry("repo", "PAPER/2", entry("two"))
	s.entryStands("repo", "PAPER", compose.DeclaredInSync)
	s.entryStands("repo", "PAPER/1", compose.DeclaredInSync)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming(`"kind":"catalog","name":"PAPER/1","state":"IN_SYNC"`)
	recommended := func() string {
		p, err := store.Get(t.Context(), s.store, keys.CatalogPlatform("PAPER"))
		if err != nil {
			t.Fatal(err)
		}
		v, _ := p.Find("")
		return v.Version + " " + v.URL
	}
	if got := recommended(); got != "2 https://host/two" {
		t.Errorf("recommended is %s", got)
	}

	// Changes by users are reverted.
	s.do("PATCH", "/api/v1/catalog/PAPER/versions/2", `{"downloadUrl":"https://elsewhere/x","sha256":"`+strings.Repeat("cd", 32)+`"}`).want(200)
	await.That(t, "it is put back", func() string { return await.Unless(recommended() == "2 https://host/two", "%s", recommended()) })

	// Errors in an entry are reported for that entry.
	s.declareEntry("repo", "PAPER/1", `{"downloadUrl":"ftp://host/x","sha256":"`+strings.Repeat("ab", 32)+`"}`)
	if st := s.entryStands("repo", "PAPER/1", compose.DeclaredFailed); !strings.Contains(st.Message, "catalog.yaml: PAPER/1: downloadUrl") {
		t.Errorf("%+v", st)
	}
	s.declareEntry("repo", "PAPER/1", `{"downloadUrl":"https://host/x"}`)
	if st := s.entryStands("repo", "PAPER/1", compose.DeclaredFailed); !strings.Contains(st.Message, "sha256 must be given") {
		t.Errorf("%+v", st)
	}
	s.declareEntry("repo", "PAPER", `{"recommended":"3"}`)
	if st := s.entryStands("repo", "PAPER", compose.DeclaredFailed); !strings.Contains(st.Message, "PAPER 3 is not in the catalog") {
		t.Errorf("%+v", st)
	}

	// A version that a group runs is removed only after the group has another.
	s.do("POST", "/api/v1/groups", `{"name":"lobby","platform":"PAPER","platformVersion":"1","jarFile":"s.jar","maxInstances":0,"minInstances":0}`).want(201)
	s.declareEntry("repo", "PAPER/1", "")
	if st := s.entryStands("repo", "PAPER/1", compose.DeclaredFailed); !strings.Contains(st.Message, "is what the groups lobby run") {
		t.Errorf("%+v", st)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"platformVersion":"2"}`).want(200)
	s.entryStands("repo", "PAPER/1", compose.DeclaredRemoved)
	s.do("DELETE", "/api/v1/groups/lobby", nil)
	if g, err := store.Get(t.Context(), s.store, keys.Group("lobby")); err == nil {
		s.commit(store.Remove(keys.Group("lobby"), g.ModRev)) // as the enforcer does at the end
	}
	s.declareEntry("repo", "PAPER", "")
	s.declareEntry("repo", "PAPER/2", "")
	s.entryStands("repo", "PAPER/2", compose.DeclaredRemoved)
	s.entryStands("repo", "PAPER", compose.DeclaredRemoved)
	if _, err := store.Get(t.Context(), s.store, keys.CatalogPlatform("PAPER")); !errs.Is(err, errs.NotFound) {
		t.Errorf("the platform is left: %v", err)
	}
}

func TestADeclarationTouchesNoEntryOfAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	for _, name := range []string{"one", "two"} {
		s.do("PUT", "/api/v1/template-sources/"+name, declaring).want(201)
	}
	s.do("POST", "/api/v1/catalog/PAPER/versions", `{"version":"1","downloadUrl":"https://host/mine","sha256":"`+strings.Repeat("ef", 32)+`"}`).want(201)
	s.declareEntry("one", "PAPER/1", entry("theirs"))
	s.declareEntry("one", "PAPER", `{"recommended":"1"}`)
	s.declareEntry("one", "PAPER/2", entry("two"))
	s.entryStands("one", "PAPER/1", compose.DeclaredConflict)
	s.entryStands("one", "PAPER", compose.DeclaredConflict)
	s.entryStands("one", "PAPER/2", compose.DeclaredInSync) // in addition
	s.declareEntry("two", "PAPER/2", entry("other"))
	if st := s.entryStands("two", "PAPER/2", compose.DeclaredConflict); !strings.Contains(st.Message, "declared by source one too") {
		t.Errorf("%+v", st)
	}
	s.declareEntry("two", "PAPER/2", "")
	s.declareEntry("one", "PAPER/1", "")
	s.entryStands("one", "PAPER/1", compose.DeclaredRemoved)
	s.entryStands("two", "PAPER/2", compose.DeclaredRemoved)
	p, err := store.Get(t.Context(), s.store, keys.CatalogPlatform("PAPER"))
	if err != nil || len(p.Versions) != 2 || p.Versions[0].URL != "https://host/mine" || p.Versions[1].URL != "https://host/two" || p.Recommended != "" {
		t.Errorf("%+v, %v", p, err)
	}
	// Entries of a deleted source stay, but its records are deleted.
	s.do("DELETE", "/api/v1/template-sources/one", nil).want(204)
	await.That(t, "its records go", func() string {
		n, err := store.Count(t.Context(), s.store, keys.DeclaredCatalogOf("one"))
		return await.Unless(err == nil && n == 0, "%d, %v", n, err)
	})
	if p, err := store.Get(t.Context(), s.store, keys.CatalogPlatform("PAPER")); err != nil || len(p.Versions) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAnOrderToRemoveCountsForWhatItsSourceMadeAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	for _, name := range []string{"one", "two"} {
		s.do("PUT", "/api/v1/template-sources/"+name, declaring).want(201)
	}
	s.declare("one", "shared", `{"command":"run"}`)
	s.stands("one", "shared", compose.DeclaredInSync)
	s.declare("two", "shared", "")
	s.stands("two", "shared", compose.DeclaredRemoved)            // two does not declare it
	s.do("DELETE", "/api/v1/template-sources/one", nil).want(204) // now no source owns the group
	s.declare("two", "later", `{"command":"run"}`)
	s.stands("two", "later", compose.DeclaredInSync) // so all were processed again
	if g, err := store.Get(t.Context(), s.store, keys.Group("shared")); err != nil || g.Deleting {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestStaleDeclarationsAreRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.often()
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	s.declare("repo", "lobby", `{"command":"run"}`)
	s.stands("repo", "lobby", compose.DeclaredInSync)
	s.declare("repo", "never", "")
	s.stands("repo", "never", compose.DeclaredRemoved)
	records := func() int64 {
		groups, err := store.Count(t.Context(), s.store, keys.DeclaredGroups())
		if err != nil {
			t.Fatal(err)
		}
		statuses, err := store.Count(t.Context(), s.store, keys.DeclaredStatuses())
		if err != nil {
			t.Fatal(err)
		}
		return int64(groups) + int64(statuses)
	}
	if n := records(); n != 4 {
		t.Errorf("%d records", n)
	}
	s.looked("repo", content.SourceStatus{State: content.SourceInSync, Revision: "a later commit"})
	await.That(t, "the removal is forgotten", func() string { return await.Unless(records() == 2, "%d records", records()) })
	s.do("DELETE", "/api/v1/template-sources/repo", nil).want(204)
	await.That(t, "its records go", func() string { return await.Unless(records() == 0, "%d records", records()) })
	s.do("GET", "/api/v1/groups/lobby", nil).want(200)
}

func TestOnlyWhoMayDeleteGroupsConfirmsTheirRemoval(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	operator := s.user("otto", "OPERATOR")
	operator.do("POST", "/api/v1/template-sources/repo/sync", nil).want(202)
	operator.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"abc"}`).want(403)
	s.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"abc"}`).want(409).naming("nothing of source repo waits")
	s.commit(store.Create(keys.TemplateSourceStatus("repo"), content.SourceStatus{Name: "repo", State: content.SourceHeld, Held: "abc"}))
	s.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"wrong"}`).want(409).naming("confirm its held, now abc")
	if got := s.source("repo"); got.Confirmed != "" || got.Asked != 1 {
		t.Errorf("a wrong confirmation was taken: %+v", got)
	}
	for range 2 { // again, because the response may have been lost
		s.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"abc"}`).want(202)
	}
	if got := s.source("repo").Confirmed; got != "abc" {
		t.Errorf("confirmed %q", got)
	}
}

func TestTheDirectoriesOfTemplatesAreShownAndConfirmedAsASource(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("GET", "/api/v1/template-sources/directory", nil).want(404)
	s.do("POST", "/api/v1/template-sources/directory/sync", nil).want(404)
	s.commit(store.Create(keys.TemplateDirectory("a"), content.TemplateDirectory{Replica: "a", ID: "x", State: content.SourceInSync}))
	s.commit(store.Create(keys.TemplateDirectory("b"), content.TemplateDirectory{Replica: "b", ID: "y", State: content.SourceHeld, Held: "abc", Message: "held: 5 of 5"}))
	s.do("GET", "/api/v1/template-sources/directory", nil).want(200).is("kind", "directory").naming("HELD").naming("b: held: 5 of 5").naming(`"held":"abc"`)
	s.do("GET", "/api/v1/template-sources", nil).want(200).naming(`"directory"`)
	operator := s.user("otto", "OPERATOR")
	operator.do("POST", "/api/v1/template-sources/directory/sync", `{"confirm":"abc"}`).want(403)
	s.do("POST", "/api/v1/template-sources/directory/sync", `{"confirm":"wrong"}`).want(409).naming("now abc")
	s.do("POST", "/api/v1/template-sources/directory/sync", `{"confirm":"abc"}`).want(202)
	operator.do("POST", "/api/v1/template-sources/directory/sync", nil).want(202)
	if got, err := store.Get(t.Context(), s.store, keys.DirectorySync()); err != nil || got.Confirmed != "abc" || got.Asked != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	s.do("DELETE", "/api/v1/template-sources/directory", nil).want(422)
	s.do("PUT", "/api/v1/template-sources/directory", declaring).want(422)
}

func TestARemovalThatIsNoLongerDeclaredRemovesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/main", declaring).want(201)
	s.declare("main", "lobby", `{"command":"run"}`)
	s.stands("main", "lobby", compose.DeclaredInSync)
	group, err := store.Get(t.Context(), s.store, keys.Group("lobby"))
	if err != nil {
		t.Fatal(err)
	}
	late := store.Unchanged(keys.DeclaredGroup("main", "lobby"), 1)
	_, err = s.gateway.operate.DeleteGroup(t.Context(), txn.Actor{User: "gitops main"}, "lobby", group.ModRev, false, late)
	if !errs.Is(err, errs.Conflict) {
		t.Errorf("answered %v", err)
	}
	if now, err := store.Get(t.Context(), s.store, keys.Group("lobby")); err != nil || now.Deleting {
		t.Errorf("deleting: %v, %v", now.Deleting, err)
	}
}
