package apigateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/declare"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/rest"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// declare writes a declared group as templatesvc does; an empty spec orders its removal.
func (s *site) declare(source, group, spec string) {
	s.t.Helper()
	key := store.DeclaredGroupKey(source, fleet.GroupName(group))
	old, err := store.Get(s.t.Context(), s.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		s.t.Fatal(err)
	}
	d := fleet.DeclaredGroup{Group: fleet.GroupName(group), Declaration: fleet.Declaration{
		Source: source, Spec: json.RawMessage(spec), File: "groups/" + group + ".yaml", Removed: spec == "",
	}}
	s.commit(store.Replace(key, d, old.ModRev))
}

// stands waits until a declared group's latest record has come to a state.
func (s *site) stands(source, group string, want fleet.DeclaredState) (st fleet.DeclaredStatus) {
	s.t.Helper()
	await.That(s.t, group+" of "+source+" "+string(want), func() string {
		d, err := store.Get(s.t.Context(), s.store, store.DeclaredGroupKey(source, fleet.GroupName(group)))
		if err == nil {
			st, err = store.Get(s.t.Context(), s.store, store.DeclaredStatusKey(source, fleet.GroupName(group)))
		}
		return await.Unless(err == nil && st.Observed == d.ModRev && st.State == want, "%+v, %v", st, err)
	})
	return st
}

// look tells that a source was looked at, as templatesvc does.
func (s *site) look(name string, state fleet.SourceState) {
	s.t.Helper()
	source, err := store.Get(s.t.Context(), s.store, store.TemplateSourceKey(name))
	if err != nil {
		s.t.Fatal(err)
	}
	s.commit(store.Create(store.TemplateSourceStatusKey(name), fleet.SourceStatus{Name: name, Observed: source.ModRev, State: state}))
}

// often has the site's declared groups looked at again and again, as a minute does.
func (s *site) often() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		declare.New(declare.Config{
			Store: s.store, Operations: s.gateway.operate, ReadGroup: rest.ReadGroup, ReadVersion: rest.ReadCatalogVersion, Every: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		}).Run(ctx)
	}()
	s.t.Cleanup(func() { cancel(); <-done })
}

const declaring = `{"kind":"git","url":"https://host/r.git","declares":true}`

func TestADeclaredGroupIsMadeKeptAndRemoved(t *testing.T) {
	s := newSite(t)
	s.often()
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201).is("declares", true)
	s.declare("repo", "lobby", `{"command":"run","maxInstances":3}`)
	s.stands("repo", "lobby", fleet.DeclaredInSync)
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("maxInstances", 3)

	// What somebody changes is put back.
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":9}`).want(200)
	await.That(t, "it is put back", func() string {
		r := s.do("GET", "/api/v1/groups/lobby", nil).want(200)
		return await.Unless(r.field("maxInstances") == 3.0, "%s", r.raw)
	})
	s.do("GET", "/api/v1/audit", nil).want(200).naming("gitops repo")

	// A file that is wrong changes nothing and is told by name.
	s.declare("repo", "lobby", `{"command":"run","maxInstances":4,"colour":"red"}`)
	if st := s.stands("repo", "lobby", fleet.DeclaredFailed); st.Message == "" {
		t.Errorf("%+v", st)
	}
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("maxInstances", 3)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming("groups/lobby.yaml").naming("colour").naming("FAILED")

	// Its removal is an order, and the enforcer's work begins.
	s.declare("repo", "lobby", "")
	s.stands("repo", "lobby", fleet.DeclaredRemoving)
	g, err := store.Get(t.Context(), s.store, store.GroupKey("lobby"))
	if err != nil || !g.Deleting {
		t.Fatalf("%+v, %v", g, err)
	}
	s.commit(store.Remove(store.GroupKey("lobby"), g.ModRev)) // as the enforcer does in the end
	s.stands("repo", "lobby", fleet.DeclaredRemoved)
}

func TestADeclarationTouchesNoGroupOfAnother(t *testing.T) {
	s := newSite(t)
	s.often()
	for _, name := range []string{"one", "two"} {
		s.do("PUT", "/api/v1/template-sources/"+name, declaring).want(201)
	}
	s.do("POST", "/api/v1/groups", `{"name":"mine","command":"run","maxInstances":1}`).want(201)
	s.declare("one", "mine", `{"command":"run","maxInstances":5}`)
	s.stands("one", "mine", fleet.DeclaredConflict)
	s.look("one", fleet.SourceInSync)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming(`"state":"FAILED","message":"1 of 1 are not as they are declared, the first is group mine, CONFLICT: the group was made through the API`)
	s.declare("one", "mine", "")
	s.stands("one", "mine", fleet.DeclaredRemoved)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming(`"state":"IN_SYNC"`)
	s.do("GET", "/api/v1/groups/mine", nil).want(200).is("maxInstances", 1)

	s.declare("one", "shared", `{"command":"run","maxInstances":1}`)
	s.stands("one", "shared", fleet.DeclaredInSync)
	s.declare("two", "shared", `{"command":"run","maxInstances":2}`)
	s.stands("two", "shared", fleet.DeclaredConflict)
	s.do("GET", "/api/v1/groups/shared", nil).want(200).is("maxInstances", 1)

	// A source that is no more keeps nobody out, and its records order nothing.
	s.do("DELETE", "/api/v1/template-sources/one", nil).want(204)
	s.stands("two", "shared", fleet.DeclaredInSync)
	s.do("GET", "/api/v1/groups/shared", nil).want(200).is("maxInstances", 2)
	s.declare("one", "shared", "")
	s.declare("two", "last", `{"command":"run"}`) // looked at after it
	s.stands("two", "last", fleet.DeclaredInSync)
	s.do("GET", "/api/v1/groups/shared", nil).want(200)
}

// declareEntry writes a declared entry of the catalog as templatesvc does; an empty spec
// orders its removal.
func (s *site) declareEntry(source, name, spec string) {
	s.t.Helper()
	key := store.DeclaredCatalogKey(source, name)
	old, err := store.Get(s.t.Context(), s.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		s.t.Fatal(err)
	}
	platform, version, _ := strings.Cut(name, "/")
	d := fleet.DeclaredCatalog{Platform: platform, Version: version, Declaration: fleet.Declaration{
		Source: source, Spec: json.RawMessage(spec), File: "catalog.yaml", Removed: spec == "",
	}}
	s.commit(store.Replace(key, d, old.ModRev))
}

// entryStands waits until a declared entry's latest record has come to a state.
func (s *site) entryStands(source, name string, want fleet.DeclaredState) (st fleet.DeclaredStatus) {
	s.t.Helper()
	await.That(s.t, name+" of "+source+" "+string(want), func() string {
		d, err := store.Get(s.t.Context(), s.store, store.DeclaredCatalogKey(source, name))
		if err == nil {
			st, err = store.Get(s.t.Context(), s.store, store.DeclaredCatalogStatusKey(source, name))
		}
		return await.Unless(err == nil && st.Observed == d.ModRev && st.State == want, "%+v, %v", st, err)
	})
	return st
}

// entry is the spec of a version.
func entry(url string) string {
	return `{"downloadUrl":"https://host/` + url + `","sha256":"` + strings.Repeat("ab", 32) + `","category":"server"}`
}

func TestADeclaredCatalogIsMadeKeptAndRemoved(t *testing.T) {
	s := newSite(t)
	s.often()
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	s.declareEntry("repo", "PAPER", `{"recommended":"2"}`) // it comes before its versions
	s.declareEntry("repo", "PAPER/1", entry("one"))
	s.declareEntry("repo", "PAPER/2", entry("two"))
	s.entryStands("repo", "PAPER", fleet.DeclaredInSync)
	s.entryStands("repo", "PAPER/1", fleet.DeclaredInSync)
	s.do("GET", "/api/v1/gitops", nil).want(200).naming(`"kind":"catalog","name":"PAPER/1","state":"IN_SYNC"`)
	recommended := func() string {
		p, err := store.Get(t.Context(), s.store, store.CatalogKey("PAPER"))
		if err != nil {
			t.Fatal(err)
		}
		v, _ := p.Find("")
		return v.Version + " " + v.URL
	}
	if got := recommended(); got != "2 https://host/two" {
		t.Errorf("recommended is %s", got)
	}

	// What somebody changes is put back.
	s.do("PATCH", "/api/v1/catalog/PAPER/versions/2", `{"downloadUrl":"https://elsewhere/x","sha256":"`+strings.Repeat("cd", 32)+`"}`).want(200)
	await.That(t, "it is put back", func() string { return await.Unless(recommended() == "2 https://host/two", "%s", recommended()) })

	// What is wrong with one is told of that one.
	s.declareEntry("repo", "PAPER/1", `{"downloadUrl":"ftp://host/x","sha256":"`+strings.Repeat("ab", 32)+`"}`)
	if st := s.entryStands("repo", "PAPER/1", fleet.DeclaredFailed); !strings.Contains(st.Message, "catalog.yaml: PAPER/1: downloadUrl") {
		t.Errorf("%+v", st)
	}
	s.declareEntry("repo", "PAPER/1", `{"downloadUrl":"https://host/x"}`)
	if st := s.entryStands("repo", "PAPER/1", fleet.DeclaredFailed); !strings.Contains(st.Message, "sha256 must be given") {
		t.Errorf("%+v", st)
	}
	s.declareEntry("repo", "PAPER", `{"recommended":"3"}`)
	if st := s.entryStands("repo", "PAPER", fleet.DeclaredFailed); !strings.Contains(st.Message, "PAPER 3 is not in the catalog") {
		t.Errorf("%+v", st)
	}

	// A version that a group runs does not go before the group has another.
	s.do("POST", "/api/v1/groups", `{"name":"lobby","platform":"PAPER","platformVersion":"1","jarFile":"s.jar","maxInstances":0,"minInstances":0}`).want(201)
	s.declareEntry("repo", "PAPER/1", "")
	if st := s.entryStands("repo", "PAPER/1", fleet.DeclaredFailed); !strings.Contains(st.Message, "is what the groups lobby run") {
		t.Errorf("%+v", st)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"platformVersion":"2"}`).want(200)
	s.entryStands("repo", "PAPER/1", fleet.DeclaredRemoved)
	s.do("DELETE", "/api/v1/groups/lobby", nil)
	if g, err := store.Get(t.Context(), s.store, store.GroupKey("lobby")); err == nil {
		s.commit(store.Remove(store.GroupKey("lobby"), g.ModRev)) // as the enforcer does in the end
	}
	s.declareEntry("repo", "PAPER", "")
	s.declareEntry("repo", "PAPER/2", "")
	s.entryStands("repo", "PAPER/2", fleet.DeclaredRemoved)
	s.entryStands("repo", "PAPER", fleet.DeclaredRemoved)
	if _, err := store.Get(t.Context(), s.store, store.CatalogKey("PAPER")); !errs.Is(err, errs.NotFound) {
		t.Errorf("the platform is left: %v", err)
	}
}

func TestADeclarationTouchesNoEntryOfAnother(t *testing.T) {
	s := newSite(t)
	s.often()
	for _, name := range []string{"one", "two"} {
		s.do("PUT", "/api/v1/template-sources/"+name, declaring).want(201)
	}
	s.do("POST", "/api/v1/catalog/PAPER/versions", `{"version":"1","downloadUrl":"https://host/mine","sha256":"`+strings.Repeat("ef", 32)+`"}`).want(201)
	s.declareEntry("one", "PAPER/1", entry("theirs"))
	s.declareEntry("one", "PAPER", `{"recommended":"1"}`)
	s.declareEntry("one", "PAPER/2", entry("two"))
	s.entryStands("one", "PAPER/1", fleet.DeclaredConflict)
	s.entryStands("one", "PAPER", fleet.DeclaredConflict)
	s.entryStands("one", "PAPER/2", fleet.DeclaredInSync) // beside it
	s.declareEntry("two", "PAPER/2", entry("other"))
	if st := s.entryStands("two", "PAPER/2", fleet.DeclaredConflict); !strings.Contains(st.Message, "declared by source one too") {
		t.Errorf("%+v", st)
	}
	s.declareEntry("two", "PAPER/2", "")
	s.declareEntry("one", "PAPER/1", "")
	s.entryStands("one", "PAPER/1", fleet.DeclaredRemoved)
	s.entryStands("two", "PAPER/2", fleet.DeclaredRemoved)
	p, err := store.Get(t.Context(), s.store, store.CatalogKey("PAPER"))
	if err != nil || len(p.Versions) != 2 || p.Versions[0].URL != "https://host/mine" || p.Versions[1].URL != "https://host/two" || p.Recommended != "" {
		t.Errorf("%+v, %v", p, err)
	}
	// What a source made that is no more stays, and its records go.
	s.do("DELETE", "/api/v1/template-sources/one", nil).want(204)
	await.That(t, "its records go", func() string {
		n, err := store.Count(t.Context(), s.store, store.DeclaredCatalogOf("one"))
		return await.Unless(err == nil && n == 0, "%d, %v", n, err)
	})
	if p, err := store.Get(t.Context(), s.store, store.CatalogKey("PAPER")); err != nil || len(p.Versions) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAnOrderToRemoveCountsForWhatItsSourceMadeAlone(t *testing.T) {
	s := newSite(t)
	s.often()
	for _, name := range []string{"one", "two"} {
		s.do("PUT", "/api/v1/template-sources/"+name, declaring).want(201)
	}
	s.declare("one", "shared", `{"command":"run"}`)
	s.stands("one", "shared", fleet.DeclaredInSync)
	s.declare("two", "shared", "")
	s.stands("two", "shared", fleet.DeclaredRemoved)              // of two there is none
	s.do("DELETE", "/api/v1/template-sources/one", nil).want(204) // now the group is nobody's
	s.declare("two", "later", `{"command":"run"}`)
	s.stands("two", "later", fleet.DeclaredInSync) // so all was looked at again
	if g, err := store.Get(t.Context(), s.store, store.GroupKey("shared")); err != nil || g.Deleting {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestTheRecordsOfADeletedSourceAndOfOldRemovalsGo(t *testing.T) {
	s := newSite(t)
	s.often()
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	s.declare("repo", "lobby", `{"command":"run"}`)
	s.stands("repo", "lobby", fleet.DeclaredInSync)
	s.declare("repo", "never", "")
	s.stands("repo", "never", fleet.DeclaredRemoved)
	records := func() int64 {
		groups, err := store.Count(t.Context(), s.store, store.DeclaredGroups())
		if err != nil {
			t.Fatal(err)
		}
		statuses, err := store.Count(t.Context(), s.store, store.DeclaredStatuses())
		if err != nil {
			t.Fatal(err)
		}
		return int64(groups) + int64(statuses)
	}
	if n := records(); n != 4 {
		t.Errorf("%d records", n)
	}
	s.looked("repo", fleet.SourceStatus{State: fleet.SourceInSync, Revision: "a later commit"})
	await.That(t, "the removal is forgotten", func() string { return await.Unless(records() == 2, "%d records", records()) })
	s.do("DELETE", "/api/v1/template-sources/repo", nil).want(204)
	await.That(t, "its records go", func() string { return await.Unless(records() == 0, "%d records", records()) })
	s.do("GET", "/api/v1/groups/lobby", nil).want(200)
}

func TestOnlyWhoMayDeleteGroupsConfirmsTheirRemoval(t *testing.T) {
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	operator := s.user("otto", "OPERATOR")
	operator.do("POST", "/api/v1/template-sources/repo/sync", nil).want(202)
	operator.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"abc"}`).want(403)
	s.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"abc"}`).want(409).naming("nothing of source repo waits")
	s.commit(store.Create(store.TemplateSourceStatusKey("repo"), fleet.SourceStatus{Name: "repo", State: fleet.SourceHeld, Held: "abc"}))
	s.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"wrong"}`).want(409).naming("confirm its held, now abc")
	if got := s.source("repo"); got.Confirmed != "" || got.Asked != 1 {
		t.Errorf("a wrong confirmation was taken: %+v", got)
	}
	for range 2 { // again: the answer may have been lost
		s.do("POST", "/api/v1/template-sources/repo/sync", `{"confirm":"abc"}`).want(202)
	}
	if got := s.source("repo").Confirmed; got != "abc" {
		t.Errorf("confirmed %q", got)
	}
}

func TestTheDirectoriesOfTemplatesAreShownAndConfirmedAsASource(t *testing.T) {
	s := newSite(t)
	s.do("GET", "/api/v1/template-sources/directory", nil).want(404)
	s.do("POST", "/api/v1/template-sources/directory/sync", nil).want(404)
	s.commit(store.Create(store.TemplateDirectoryKey("a"), fleet.TemplateDirectory{Replica: "a", ID: "x", State: fleet.SourceInSync}))
	s.commit(store.Create(store.TemplateDirectoryKey("b"), fleet.TemplateDirectory{Replica: "b", ID: "y", State: fleet.SourceHeld, Held: "abc", Message: "held: 5 of 5"}))
	s.do("GET", "/api/v1/template-sources/directory", nil).want(200).is("kind", "directory").naming("HELD").naming("b: held: 5 of 5").naming(`"held":"abc"`)
	s.do("GET", "/api/v1/template-sources", nil).want(200).naming(`"directory"`)
	operator := s.user("otto", "OPERATOR")
	operator.do("POST", "/api/v1/template-sources/directory/sync", `{"confirm":"abc"}`).want(403)
	s.do("POST", "/api/v1/template-sources/directory/sync", `{"confirm":"wrong"}`).want(409).naming("now abc")
	s.do("POST", "/api/v1/template-sources/directory/sync", `{"confirm":"abc"}`).want(202)
	operator.do("POST", "/api/v1/template-sources/directory/sync", nil).want(202)
	if got, err := store.Get(t.Context(), s.store, store.DirectorySyncKey()); err != nil || got.Confirmed != "abc" || got.Asked != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	s.do("DELETE", "/api/v1/template-sources/directory", nil).want(422)
	s.do("PUT", "/api/v1/template-sources/directory", declaring).want(422)
}

func TestARemovalThatIsNoLongerDeclaredRemovesNothing(t *testing.T) {
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/main", declaring).want(201)
	s.declare("main", "lobby", `{"command":"run"}`)
	s.stands("main", "lobby", fleet.DeclaredInSync)
	group, err := store.Get(t.Context(), s.store, store.GroupKey("lobby"))
	if err != nil {
		t.Fatal(err)
	}
	late := store.Unchanged(store.DeclaredGroupKey("main", "lobby"), 1)
	_, err = s.gateway.operate.DeleteGroup(t.Context(), operate.Actor{User: "gitops main"}, "lobby", group.ModRev, false, late)
	if !errs.Is(err, errs.Conflict) {
		t.Errorf("answered %v", err)
	}
	if now, err := store.Get(t.Context(), s.store, store.GroupKey("lobby")); err != nil || now.Deleting {
		t.Errorf("deleting: %v, %v", now.Deleting, err)
	}
}
