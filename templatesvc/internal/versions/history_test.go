package versions_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

func TestARollbackWithoutAVersionUndoesTheLatestMoves(t *testing.T) {
	w := newWorld(t)
	a := w.publish("f", "A")
	b := w.publish("f", "B")
	if back := w.publish("f", "A"); back.Digest != a.Digest || back.Previous != b.Digest {
		t.Fatalf("back to the old content: %+v", back)
	}
	for _, want := range []string{b.Digest, a.Digest} {
		h, err := w.Rollback(t.Context(), ref, "", me)
		if err != nil || h.Digest != want {
			t.Errorf("rolled back to %s, %v; want %s", h.Digest, err, want)
		}
	}
	if _, err := w.Rollback(t.Context(), ref, "", me); !errs.Is(err, errs.Conflict) {
		t.Errorf("before the first: %v", err)
	}
	moves, err := w.History(t.Context(), ref)
	if err != nil || len(moves) != 5 {
		t.Fatalf("%d moves, %v", len(moves), err)
	}
	if m := moves[3]; m.Kind != content.MoveRollback || m.Author != "me" || m.Number != 4 || m.Digest != b.Digest || m.Previous != a.Digest {
		t.Errorf("got %+v", m)
	}
}

func TestATemplateFromBeforeMovesRollsBackToItsParent(t *testing.T) {
	w := newWorld(t)
	first := w.publish("f", "A")
	second := w.publish("f", "B")
	var writes []store.Write
	moves, err := w.History(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range moves {
		writes = append(writes, store.Remove(keys.TemplateMove(ref, m.Number), m.ModRev))
	}
	second.Move, second.Previous = 0, ""
	writes = append(writes, store.Replace(keys.TemplateHead(ref), second, second.ModRev))
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: writes}); err != nil {
		t.Fatal(err)
	}
	if h, err := w.Rollback(t.Context(), ref, "", me); err != nil || h.Digest != first.Digest || h.Move != 1 {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestMovesAreCountedOnAfterATemplateWasRemoved(t *testing.T) {
	w := newWorld(t)
	source(w, "f", "A")
	if err := w.Retract(t.Context(), ref, "directory"); err != nil {
		t.Fatal(err)
	}
	if h := w.publish("f", "B"); h.Move != 3 || h.Previous != "" {
		t.Errorf("got %+v", h)
	}
}

func source(w *world, files ...string) (h content.TemplateHead, moved bool) {
	w.Helper()
	p := w.begin()
	defer p.Close(w.Context())
	h, moved, err := w.PublishSource(w.Context(), p, ref, w.tree(p, files...), versions.Provenance{Author: "source", Message: "changed", Origin: "directory"})
	if err != nil {
		w.Fatal(err)
	}
	return h, moved
}

func TestEditsAndItsSourceAreJoined(t *testing.T) {
	w := newWorld(t)
	source(w, "a", "1", "b", "1")
	w.publish("a", "1", "b", "edited", "mine", "1")
	h, moved := source(w, "a", "2", "b", "1")
	m, err := w.Manifest(t.Context(), h.Digest)
	if err != nil || !moved || len(m.Entries) != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	h, _ = source(w, "a", "2", "b", "theirs")
	if m, err = w.Manifest(t.Context(), h.Digest); err != nil || len(m.Entries) != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	moves, err := w.History(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if last := moves[len(moves)-1]; last.Message != "changed, joined with edits; the source won at b" || last.Kind != content.MoveSource {
		t.Errorf("got %+v", last)
	}
}

func TestARolledBackTemplateIsItsSourceAgainWithTheNextChange(t *testing.T) {
	w := newWorld(t)
	first, _ := source(w, "a", "1", "b", "1")
	source(w, "a", "2", "b", "2")
	if h, err := w.Rollback(t.Context(), ref, first.Digest, me); err != nil || h.Digest != first.Digest {
		t.Fatal(h, err)
	}
	if _, moved := source(w, "a", "2", "b", "2"); moved {
		t.Error("an unchanged source undid the rollback")
	}
	want, _ := source(w, "a", "3", "b", "2")
	p := w.begin()
	if _, digest, err := w.tree(p, "a", "3", "b", "2").Canonical(content.VersionLimits()); err != nil || want.Digest != digest {
		t.Errorf("published %s, not the source as it is, %s: %v", want.Digest, digest, err)
	}
}

func TestAnUnchangedSourceWritesNothing(t *testing.T) {
	w := newWorld(t)
	source(w, "a", "1")
	p := w.begin()
	m := w.tree(p, "a", "1")
	p.Close(t.Context())
	before := w.revision()
	if _, moved, err := w.PublishSource(t.Context(), nil, ref, m, versions.Provenance{Origin: "directory"}); err != nil || moved {
		t.Fatal(moved, err)
	}
	if after := w.revision(); after != before {
		t.Errorf("etcd was written to %d times", after-before)
	}
}
