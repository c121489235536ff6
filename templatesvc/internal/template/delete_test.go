package template_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// plan stores a plan of a version, as whoever starts an instance does.
func (w *world) plan(digest string) (remove func()) {
	w.Helper()
	p := fleet.Plan{Group: "lobby", Layers: []fleet.PlanLayer{{TemplateRef: ref, Digest: digest}}}
	key := store.PlanKey(p.Digest())
	rev, err := w.c.Commit(w.Context(), store.Txn{
		Guards: []store.Guard{store.Exists(store.TemplateVersionKey(ref, digest))},
		Writes: []store.Write{store.Create(key, fleet.StoredPlan{Plan: p})},
	})
	if err != nil {
		w.Fatal(err)
	}
	return func() {
		if _, err := w.c.Commit(w.Context(), store.Txn{Writes: []store.Write{store.Remove(key, rev)}}); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) versions() (digests []string) {
	w.Helper()
	versions, _, err := store.List(w.Context(), w.c, store.TemplateVersions(ref))
	if err != nil {
		w.Fatal(err)
	}
	for _, v := range versions {
		digests = append(digests, v.Digest)
	}
	return digests
}

func (w *world) doomed() int {
	w.Helper()
	n, err := store.Count(w.Context(), w.c, store.TemplatesDoomed())
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func TestAHeadOrUsedVersionIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	old := w.publish("f", "old")
	head := w.publish("f", "new")
	if err := w.DeleteVersion(t.Context(), ref, head.Digest, me); !errs.Is(err, errs.Conflict) {
		t.Errorf("the head: %v", err)
	}
	ended := w.plan(old.Digest)
	if err := w.DeleteVersion(t.Context(), ref, old.Digest, me); !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "lobby") {
		t.Errorf("a version in use: %v", err)
	}
	if got := w.versions(); len(got) != 2 || w.doomed() != 0 {
		t.Fatalf("%v are left, %d doomed", got, w.doomed())
	}
	ended()
	if err := w.DeleteVersion(t.Context(), ref, old.Digest, me); err != nil {
		t.Errorf("an old version: %v", err)
	}
	if got := w.versions(); !slices.Equal(got, []string{head.Digest}) || w.doomed() != 0 {
		t.Errorf("%v are left, %d doomed", got, w.doomed())
	}
	if err := w.DeleteVersion(t.Context(), ref, old.Digest, me); !errs.Is(err, errs.NotFound) {
		t.Errorf("once more: %v", err)
	}
	if again := w.publish("f", "old"); again.Digest != old.Digest || len(w.versions()) != 2 {
		t.Errorf("published anew: %+v", again)
	}
}

func TestADeletionThatWasCutOffIsEnded(t *testing.T) {
	w := newWorld(t)
	used, unused := w.publish("f", "used"), w.publish("f", "unused")
	head := w.publish("f", "new")
	w.plan(used.Digest)
	for _, h := range []fleet.TemplateHead{used, unused} { // what a replica leaves that dies after the first step
		v, err := store.Get(t.Context(), w.c, store.TemplateVersionKey(ref, h.Digest))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{
			store.Remove(store.TemplateVersionKey(ref, h.Digest), v.ModRev),
			store.Create(store.TemplateDoomedKey(ref, h.Digest), fleet.TemplateDoomed{Version: v}),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SettleDoomed(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{used.Digest, head.Digest}
	slices.Sort(want)
	if got := w.versions(); !slices.Equal(got, want) || w.doomed() != 0 {
		t.Errorf("%v are left, want %v; %d doomed", got, want, w.doomed())
	}
}

func TestADeletedTemplateLeavesWhatRunsOfIt(t *testing.T) {
	w := newWorld(t)
	used := w.publish("f", "used")
	w.publish("f", "other")
	head := w.publish("f", "new")
	w.plan(used.Digest)
	if err := w.Delete(t.Context(), ref, template.Asked{Revision: head.ModRev - 1}); !errs.Is(err, errs.Conflict) {
		t.Errorf("from another head: %v", err)
	}
	if err := w.Delete(t.Context(), ref, template.Asked{Author: "me", Revision: head.ModRev}); err != nil {
		t.Fatal(err)
	}
	if got := w.versions(); !slices.Equal(got, []string{used.Digest}) {
		t.Errorf("%v are left, want the one in use, %s", got, used.Digest)
	}
	if err := w.Delete(t.Context(), ref, me); !errs.Is(err, errs.NotFound) {
		t.Errorf("once more: %v", err)
	}
}
