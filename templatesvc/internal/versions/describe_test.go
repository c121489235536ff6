package versions_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

func TestATemplateIsCreatedOnceAndDescribed(t *testing.T) {
	w := newWorld(t)
	text, platform := "the lobby", "PAPER"
	made, err := w.Create(t.Context(), ref, versions.Description{Text: &text}, me)
	if err != nil || made.Files != 0 || made.Description != text {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := w.Create(t.Context(), ref, versions.Description{}, me); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("once more: %v", err)
	}
	h, err := w.Describe(t.Context(), ref, versions.Description{Platform: &platform}, versions.Asked{Revision: made.ModRev})
	if err != nil || h.Description != text || h.Platform != platform || h.Digest != made.Digest || h.Move != made.Move {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := w.Describe(t.Context(), ref, versions.Description{}, versions.Asked{Revision: made.ModRev}); !errs.Is(err, errs.Conflict) {
		t.Errorf("from another revision: %v", err)
	}
}

func TestADiffIsOfTwoVersionsThatAreThere(t *testing.T) {
	w := newWorld(t)
	a, b := w.publish("f", "1"), w.publish("f", "1", "g", "2")
	changes, more, err := w.Diff(t.Context(), a.Digest, b.Digest, "")
	if err != nil || more || len(changes) != 1 || changes[0].Path != "g" {
		t.Errorf("%+v, %v", changes, err)
	}
	if changes, _, err := w.Diff(t.Context(), a.Digest, b.Digest, "f"); err != nil || len(changes) != 0 {
		t.Errorf("of a file that is the same: %+v, %v", changes, err)
	}
	if _, _, err := w.Diff(t.Context(), a.Digest, a.Digest[:63]+"x", ""); err == nil {
		t.Error("a version that is none was compared")
	}
}
