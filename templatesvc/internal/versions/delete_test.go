package versions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// plan stores a plan that uses a version, as the start of an instance does.
func (w *world) plan(digest string) (remove func()) {
	w.Helper()
	p := fleet.Plan{Group: "lobby", Layers: []fleet.PlanLayer{{TemplateRef: ref, Digest: digest}}}
	key := keys.Plan(p.Digest())
	rev, err := w.c.Commit(w.Context(), store.Txn{
		Guards: []store.Guard{store.Exists(keys.TemplateVersion(ref, digest))},
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
	versions, _, err := store.List(w.Context(), w.c, keys.TemplateVersions(ref))
	if err != nil {
		w.Fatal(err)
	}
	for _, v := range versions {
		digests = append(digests, v.Digest)
	}
	return digests
}

// doom dooms a version, as another replica does.
func (w *world) doom(digest string) {
	w.Helper()
	v, err := store.Get(w.Context(), w.c, keys.TemplateVersion(ref, digest))
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.c.Commit(w.Context(), store.Txn{Writes: []store.Write{
		store.Remove(keys.TemplateVersion(ref, digest), v.ModRev),
		store.Create(keys.TemplateDoomed(ref, digest), content.TemplateDoomed{Version: v}),
	}}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) doomed() int {
	w.Helper()
	n, err := store.Count(w.Context(), w.c, keys.TemplatesDoomed())
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
	for _, h := range []content.TemplateHead{used, unused} { // as left by a replica that crashes after the first step
		w.doom(h.Digest)
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
	if err := w.Delete(t.Context(), ref, versions.Asked{Revision: head.ModRev - 1}); !errs.Is(err, errs.Conflict) {
		t.Errorf("from another head: %v", err)
	}
	if err := w.Delete(t.Context(), ref, versions.Asked{Author: "me", Revision: head.ModRev}); err != nil {
		t.Fatal(err)
	}
	if got := w.versions(); !slices.Equal(got, []string{used.Digest}) {
		t.Errorf("%v are left, want the one in use, %s", got, used.Digest)
	}
	if err := w.Delete(t.Context(), ref, me); !errs.Is(err, errs.NotFound) {
		t.Errorf("once more: %v", err)
	}
}

// unchanged returns a check that a version was never deleted in between.
func (w *world) unchanged(digest string) func() {
	key := keys.TemplateVersion(ref, digest)
	before, err := store.Get(w.Context(), w.c, key)
	if err != nil {
		w.Fatal(err)
	}
	return func() {
		w.Helper()
		if now, err := store.Get(w.Context(), w.c, key); err != nil || now.CreateRev != before.CreateRev {
			w.Errorf("it was none for a while: %+v, %v", now, err)
		}
	}
}

func TestWhatIsInUseIsAVersionAllTheTime(t *testing.T) {
	for name, do := range map[string]func(w *world, used string) error{
		"delete version": func(w *world, used string) error {
			if err := w.DeleteVersion(w.Context(), ref, used, me); !errs.Is(err, errs.Conflict) {
				return fmt.Errorf("want a Conflict, not %w", err)
			}
			return nil
		},
		"delete": func(w *world, _ string) error { return w.Delete(w.Context(), ref, me) },
		"retire": func(w *world, _ string) error { return w.Retire(w.Context(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			used := w.publish("f", "used")
			w.publish("f", "new")
			w.plan(used.Digest)
			check := w.unchanged(used.Digest)
			if err := do(w, used.Digest); err != nil {
				t.Error(err)
			}
			check()
		})
	}
}

// onceDoomed calls do as soon as a version is doomed.
func (w *world) onceDoomed(do func()) {
	var look func()
	look = func() {
		if w.doomed() > 0 {
			do()
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.meanwhile = look
	}
	w.meanwhile = look
}

func TestAnOldVersionIsDeletedWhileTheHeadMoves(t *testing.T) {
	w := newWorld(t)
	old := w.publish("f", "old")
	head := w.publish("f", "new")
	w.meanwhile = func() { w.publish("f", "newer") }
	if err := w.DeleteVersion(t.Context(), ref, old.Digest, me); err != nil {
		t.Error(err)
	}
	w.meanwhile = func() {
		if _, err := w.Rollback(t.Context(), ref, head.Digest, me); err != nil {
			t.Error(err)
		}
	}
	if err := w.DeleteVersion(t.Context(), ref, head.Digest, me); !errs.Is(err, errs.Conflict) {
		t.Errorf("what became the head: %v", err)
	}
	if len(w.versions()) != 2 || w.doomed() != 0 {
		t.Errorf("%v are left, %d doomed", w.versions(), w.doomed())
	}
}

func TestADeletionThatAnotherEndsMeanwhileIsMadeAndRemembered(t *testing.T) {
	w := newWorld(t)
	old := w.publish("f", "old")
	w.publish("f", "new")
	w.onceDoomed(func() {
		if err := w.SettleDoomed(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if err := w.DeleteVersion(t.Context(), ref, old.Digest, versions.Asked{Operation: "op1"}); err != nil {
			t.Error(err)
		}
	}
	if len(w.versions()) != 1 || w.doomed() != 0 {
		t.Errorf("%v are left, %d doomed", w.versions(), w.doomed())
	}
}

func TestADeletionThatAnotherTakesBackMeanwhileIsRefused(t *testing.T) {
	w := newWorld(t)
	old := w.publish("f", "old")
	w.publish("f", "new")
	w.onceDoomed(func() { // a plan that was created at the same time
		p := fleet.Plan{Group: "lobby", Layers: []fleet.PlanLayer{{TemplateRef: ref, Digest: old.Digest}}}
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Plan(p.Digest()), fleet.StoredPlan{Plan: p})}}); err != nil {
			t.Error(err)
		}
		if err := w.SettleDoomed(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := w.DeleteVersion(t.Context(), ref, old.Digest, versions.Asked{Operation: "op1"}); !errs.Is(err, errs.Conflict) {
		t.Errorf("refused with %v", err)
	}
	if len(w.versions()) != 2 || w.doomed() != 0 || len(w.remembered()) != 0 {
		t.Errorf("%v are left, %d doomed, %v remembered", w.versions(), w.doomed(), w.remembered())
	}
}

func TestADeletionWhoseNameIsTakenMeanwhileLeavesTheVersion(t *testing.T) {
	w := newWorld(t)
	old := w.publish("f", "old")
	w.publish("f", "new")
	w.onceDoomed(func() {
		if err := w.describe("op1", "words"); err != nil {
			t.Error(err)
		}
	})
	err := w.DeleteVersion(t.Context(), ref, old.Digest, versions.Asked{Operation: "op1"})
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != client.Reused {
		t.Errorf("refused with %v", err)
	}
	if len(w.versions()) != 2 || w.doomed() != 0 {
		t.Errorf("%v are left, %d doomed", w.versions(), w.doomed())
	}
}

func TestADeletionThatIsAskedForAgainGoesOnWhereItWasCutOff(t *testing.T) {
	w := newWorld(t)
	old := w.publish("f", "old")
	w.publish("f", "new")
	w.doom(old.Digest)
	if err := w.DeleteVersion(t.Context(), ref, old.Digest, me); err != nil || w.doomed() != 0 || len(w.versions()) != 1 {
		t.Errorf("%v; %v are left, %d doomed", err, w.versions(), w.doomed())
	}
}
