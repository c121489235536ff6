package versions_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

func TestAPublishThatLostItsLeaseIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.begin()
	m := w.tree(p, "f", "one")
	open, _, err := store.List(t.Context(), w.c, keys.TemplatePublishes())
	if err != nil || len(open) != 1 {
		t.Fatalf("open publishes: %v, %v", open, err)
	}
	if err := store.RevokeSession(t.Context(), w.c, keys.TemplatePublish(open[0].ID), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Commit(t.Context(), versions.Move{Ref: ref, Manifest: m, Kind: content.MoveEdit}); !errs.Is(err, errs.Fenced) {
		t.Errorf("got %v", err)
	}
	if h := w.head(); h.Digest != "" {
		t.Errorf("a head was written: %+v", h)
	}
}

func TestAPublishThatWasEndedIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.begin()
	m := w.tree(p, "f", "one")
	open, err := w.Publishes(t.Context())
	if err != nil || len(open) != 1 {
		t.Fatalf("open publishes: %v, %v", open, err)
	}
	for range 2 { // the second call finds it ended
		if err := w.EndPublish(t.Context(), open[0]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Commit(t.Context(), versions.Move{Ref: ref, Manifest: m, Kind: content.MoveEdit}); !errs.Is(err, errs.Fenced) {
		t.Errorf("got %v", err)
	}
}

func TestAPublishLeavesNoRecord(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "one")
	p := w.begin()
	w.tree(p, "f", "two")
	p.Close(t.Context()) // abandoned
	if n, err := store.Count(t.Context(), w.c, keys.TemplatePublishes()); n != 0 || err != nil {
		t.Errorf("%d publishes are open, %v", n, err)
	}
}

func TestAMoveFromAnotherHeadIsRefusedOrRebased(t *testing.T) {
	w := newWorld(t)
	first := w.publish("f", "one")
	p := w.begin()
	m := w.tree(p, "f", "two")
	if _, err := p.Commit(t.Context(), versions.Move{Ref: ref, Manifest: m, Kind: content.MoveEdit}); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("a second creation: %v", err)
	}
	second := w.publish("f", "one", "g", "1")
	move := versions.Move{Ref: ref, Manifest: m, Base: first.Digest, Kind: content.MoveEdit}
	if _, err := p.Commit(t.Context(), move); !errs.Is(err, errs.Conflict) {
		t.Errorf("a base that is no head any more: %v", err)
	}
	refusal := errors.New("cannot be joined")
	move.Rebase = func(*versions.Move, content.TemplateHead, content.Manifest) error { return refusal }
	if _, err := p.Commit(t.Context(), move); !errors.Is(err, refusal) {
		t.Errorf("a refused rebase: %v", err)
	}
	move.Rebase = func(move *versions.Move, head content.TemplateHead, current content.Manifest) error {
		if head.Digest != second.Digest || len(current.Entries) != 2 {
			t.Errorf("rebased on %+v", head)
		}
		move.Manifest.Entries = append(slices.Clone(m.Entries), current.Entries[1])
		return nil
	}
	h, err := p.Commit(t.Context(), move)
	if err != nil || h.Files != 2 || h.Previous != second.Digest || h.Move != 3 {
		t.Errorf("rebased to %+v, %v", h, err)
	}
}

func TestParallelEditsAreAllKept(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "one")
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Go(func() {
			p := w.begin()
			mine := w.tree(p, fmt.Sprint("file-", n), "content")
			add := func(move *versions.Move, _ content.TemplateHead, current content.Manifest) error {
				move.Manifest.Entries = slices.Concat(current.Entries, mine.Entries)
				return nil
			}
			if _, err := p.Commit(t.Context(), versions.Move{Ref: ref, Base: "none", Rebase: add, Kind: content.MoveEdit}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if h := w.head(); h.Files != 7 || h.Move != 7 {
		t.Errorf("%d files after %d moves", h.Files, h.Move)
	}
}

func TestAHeadKeepsWhatAMoveSaysNothingOf(t *testing.T) {
	w := newWorld(t)
	p := w.begin()
	text, platform := "the lobby", "PAPER"
	if _, err := p.Commit(t.Context(), versions.Move{Ref: ref, Manifest: w.tree(p, "f", "1"), Kind: content.MoveEdit, Description: &text, Platform: &platform}); err != nil {
		t.Fatal(err)
	}
	if h := w.publish("f", "2"); h.Description != text || h.Platform != platform {
		t.Errorf("got %+v", h)
	}
}

func TestContentThatIsNotStoredIsNotPublished(t *testing.T) {
	w := newWorld(t)
	p := w.begin()
	m := content.Manifest{Entries: []content.ManifestEntry{{Path: "f", Size: 1, SHA256: strings.Repeat("a", 64)}}}
	if _, err := p.Commit(t.Context(), versions.Move{Ref: ref, Manifest: m, Kind: content.MoveEdit}); !errs.Is(err, errs.Conflict) {
		t.Errorf("got %v", err)
	}
}

func TestAMoveToTheHeadItselfIsNone(t *testing.T) {
	w := newWorld(t)
	first := w.publish("f", "one")
	if again := w.publish("f", "one"); again.ModRev != first.ModRev {
		t.Error("the head was written again")
	}
}
