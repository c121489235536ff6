package templatesvc_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
)

var bob = client.Asked{Author: "bob"}

func TestATemplatesLifeOverItsAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	c := clientOf(s)
	text, platform := "the lobby", "PAPER"
	other := content.TemplateRef{Group: "g", Name: "made"}
	made, err := c.CreateTemplate(t.Context(), other, client.Description{Description: &text}, client.Asked{Author: "alice"})
	if err != nil || made.Description != text {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := c.CreateTemplate(t.Context(), other, client.Description{}, client.Asked{Author: "alice"}); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("once more: %v", err)
	}
	if _, err := c.CreateTemplate(t.Context(), content.TemplateRef{Group: "g", Name: "a b"}, client.Description{}, client.Asked{Author: "alice"}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a name that cannot be used: %v", err)
	}
	if h, err := c.DescribeTemplate(t.Context(), other, client.Description{Platform: &platform}, client.Asked{Author: "bob", Revision: made.ModRev}); err != nil || h.Platform != platform || h.Description != text {
		t.Errorf("%+v, %v", h, err)
	}
	if err := c.DeleteVersion(t.Context(), other, made.Digest, bob); !errs.Is(err, errs.Conflict) {
		t.Errorf("the head's version: %v", err)
	}
	if err := c.DeleteTemplate(t.Context(), other, bob); err != nil {
		t.Error(err)
	}
	moves, err := c.History(t.Context(), other)
	if err != nil || len(moves) != 2 || moves[0].Author != "alice" || moves[1].Author != "bob" || moves[1].Kind != content.MoveRetract {
		t.Errorf("%+v, %v", moves, err)
	}
	if err := c.DeleteTemplate(t.Context(), other, bob); !errs.Is(err, errs.NotFound) {
		t.Errorf("once more: %v", err)
	}
}

func TestVersionsAreComparedAndDeletedOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, _ := w.start("a")
	c := clientOf(s)
	first, _ := w.head()
	w.write("g", "two", 0o644)
	second := w.await("moved", func(h content.TemplateHead, _ bool) bool { return h.Digest != first.Digest })
	d, err := c.Diff(t.Context(), first.Digest, second.Digest, "")
	if err != nil || d.More || len(d.Changes) != 1 || d.Changes[0].Change != content.ChangeAdded {
		t.Errorf("%+v, %v", d, err)
	}
	if err := c.DeleteVersion(t.Context(), ref, first.Digest, bob); err != nil || w.versions() != 1 {
		t.Errorf("%d versions, %v", w.versions(), err)
	}
	if _, err := c.Rollback(t.Context(), ref, client.RollbackRequest{}, client.Asked{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("to the deleted version: %v", err)
	}
}
