package versions_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

func TestOldVersionsAreRetiredButTheHeadAndWhatIsInUse(t *testing.T) {
	w := newWorld(t)
	var digests []string
	for n := range 6 {
		digests = append(digests, w.publish("f", fmt.Sprint(n)).Digest)
	}
	w.plan(digests[1])
	if _, err := w.Rollback(t.Context(), ref, digests[2], me); err != nil {
		t.Fatal(err)
	}
	if err := w.Retire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	want := []string{digests[1], digests[2], digests[4], digests[5]}
	slices.Sort(want)
	if got := w.versions(); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if err := w.Retire(t.Context(), 0); err != nil || len(w.versions()) != 4 {
		t.Errorf("without a bound: %v, %v", w.versions(), err)
	}
}

func TestPicturesThatNobodyShowsAreRetired(t *testing.T) {
	w := newWorld(t)
	base, digests := "", []string{}
	for n := range 5 {
		p := w.begin()
		m := w.tree(p, "id/picture", fmt.Sprint(n))
		h, err := p.Commit(t.Context(), versions.Move{Ref: content.AvatarTemplate, Manifest: m, Base: base, Kind: content.MoveEdit, Asked: me})
		if err != nil {
			t.Fatal(err)
		}
		base, digests = h.Digest, append(digests, h.Digest)
		w.publish("f", fmt.Sprint(n))
	}
	if err := w.Retire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	kept, _, err := store.List(t.Context(), w.c, keys.TemplateVersions(content.AvatarTemplate))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, len(kept))
	for n, v := range kept {
		got[n] = v.Digest
	}
	want := slices.Clone(digests[4:])
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("left %v, want the newest, %v", got, want)
	}
	if n := len(w.versions()); n != 5 {
		t.Errorf("%d versions of another template are left, want all", n)
	}
}

func TestTheVersionsOfATemplateThatWentAreRetiredAfterAWeek(t *testing.T) {
	w := newWorld(t)
	source(w, "f", "1")
	if err := w.Retract(t.Context(), ref, "directory"); err != nil {
		t.Fatal(err)
	}
	if err := w.Retire(t.Context(), 1); err != nil || len(w.versions()) != 1 {
		t.Fatalf("at once: %v, %v", w.versions(), err)
	}
	w.clock = w.clock.Add(8 * 24 * time.Hour)
	if err := w.Retire(t.Context(), 1); err != nil || len(w.versions()) != 0 {
		t.Errorf("after a week: %v, %v", w.versions(), err)
	}
}

// left counts what is left of the template, without its versions.
func (w *world) left() string {
	w.Helper()
	moves, err := store.Count(w.Context(), w.c, keys.TemplateMoves(ref))
	drafts, err2 := store.Count(w.Context(), w.c, keys.TemplateDraftsOf(ref))
	gone, err3 := store.Count(w.Context(), w.c, keys.TemplatesGone())
	if err := errors.Join(err, err2, err3); err != nil {
		w.Fatal(err)
	}
	return fmt.Sprintf("%d moves, %d drafts, %d gone", moves, drafts, gone)
}

func TestTheHistoryOfADeletedTemplateGoesAfterAWeek(t *testing.T) {
	w := newWorld(t)
	var used string
	for n := range 120 { // more than one transaction removes
		used = w.publish("f", fmt.Sprint(n)).Digest
	}
	w.stage("g", "staged")
	ended := w.plan(used)
	if err := w.Delete(t.Context(), ref, me); err != nil {
		t.Fatal(err)
	}
	retire := func() string {
		t.Helper()
		if err := w.Retire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		return w.left()
	}
	if got := retire(); got != "121 moves, 1 drafts, 1 gone" {
		t.Errorf("at once %s are left", got)
	}
	w.clock = w.clock.Add(8 * 24 * time.Hour)
	if got := retire(); got != "121 moves, 1 drafts, 1 gone" {
		t.Errorf("while a version is in use %s are left", got)
	}
	ended()
	if got := retire(); got != "0 moves, 0 drafts, 0 gone" {
		t.Errorf("after a week %s are left", got)
	}
	if h := w.publish("f", "anew"); h.Move != 1 {
		t.Errorf("made anew at move %d", h.Move)
	}
}

func TestAHistoryStaysWhileAVersionIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	used := w.publish("f", "1")
	w.plan(used.Digest)
	if err := w.Delete(t.Context(), ref, me); err != nil {
		t.Fatal(err)
	}
	w.clock = w.clock.Add(8 * 24 * time.Hour)
	w.meanwhile = func() { // the service reads the clock after it has listed the versions
		w.meanwhile = func() { w.doom(used.Digest) }
	}
	if err := w.Retire(t.Context(), 0); err != nil || w.left() != "2 moves, 0 drafts, 1 gone" {
		t.Errorf("%s are left, %v", w.left(), err)
	}
	if w.doomed() != 1 {
		t.Error("no version was being deleted")
	}
}

func TestATemplateThatWasMadeAnewKeepsItsHistory(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "1")
	if err := w.Delete(t.Context(), ref, me); err != nil {
		t.Fatal(err)
	}
	w.publish("f", "2")
	w.clock = w.clock.Add(8 * 24 * time.Hour)
	if err := w.Retire(t.Context(), 0); err != nil || w.left() != "3 moves, 0 drafts, 0 gone" {
		t.Errorf("%s are left, %v", w.left(), err)
	}
	if err := w.Delete(t.Context(), ref, me); err != nil {
		t.Fatal(err)
	}
	if err := w.Retire(t.Context(), 0); err != nil || w.left() != "4 moves, 0 drafts, 1 gone" {
		t.Errorf("deleted once more: %s are left, %v", w.left(), err)
	}
}

func TestRootsAreAllThatRefersToContent(t *testing.T) {
	w := newWorld(t)
	h, _ := source(w, "f", "1")
	planned := w.publish("f", "planned")
	w.plan(planned.Digest)
	edited := w.publish("f", "edited")
	versions, _, err := store.List(t.Context(), w.c, keys.TemplateVersions(ref))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions { // pretend that all were deleted; heads and plans still refer to them
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Remove(keys.TemplateVersion(ref, v.Digest), v.ModRev)}}); err != nil {
			t.Fatal(err)
		}
	}
	roots, err := w.Roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, digest := range map[string]string{"the head": edited.Digest, "a plan": planned.Digest, "what the source held": h.Digest} {
		if !slices.Contains(roots, digest) {
			t.Errorf("%s is no root", name)
		}
	}
}
