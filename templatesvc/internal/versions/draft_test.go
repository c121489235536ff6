package versions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

var ada = versions.Asked{Author: "ada/x", Owner: "u-ada"}

// stage adds files to the draft of the user ada.
func (w *world) stage(files ...string) content.TemplateDraft {
	w.Helper()
	p := w.begin()
	added := w.tree(p, files...)
	h, err := p.Stage(w.Context(), ref, ada, func(_ content.TemplateHead, m content.Manifest) (content.Manifest, error) {
		m.Entries = append(m.Entries, added.Entries...)
		return m, nil
	})
	if err != nil {
		w.Fatal(err)
	}
	d, err := w.Draft(w.Context(), ref, ada)
	if err != nil || d.Digest != h.Digest {
		w.Fatalf("staged %+v, the draft is %+v, %v", h, d, err)
	}
	return d
}

func TestStagedEditsAreOneVersionWhenPublished(t *testing.T) {
	w := newWorld(t)
	if _, err := w.begin().Stage(t.Context(), ref, ada, nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("staged for no template: %v", err)
	}
	before := w.publish("a", "1")
	w.stage("b", "2")
	if d := w.stage("c", "3"); d.Edits != 2 || d.Base != before.Digest {
		t.Errorf("%+v", d)
	}
	if h, _ := w.Head(t.Context(), ref); h.Digest != before.Digest {
		t.Error("staging moved the head")
	}
	h, err := w.PublishDraft(t.Context(), ref, ada, "")
	if err != nil || h.Files != 3 || h.Move != 2 {
		t.Fatalf("%+v, %v", h, err)
	}
	if again, err := w.PublishDraft(t.Context(), ref, ada, ""); err != nil || again.ModRev != h.ModRev {
		t.Errorf("published twice: %+v, %v", again, err)
	}
	if err := w.DropDraft(t.Context(), ref, ada); !errs.Is(err, errs.NotFound) {
		t.Errorf("the draft is still there: %v", err)
	}
}

func TestADraftIsJoinedWithWhatTheHeadHasBecome(t *testing.T) {
	w := newWorld(t)
	w.publish("a", "1", "z", "0")
	w.stage("b", "2")
	now := w.publish("a", "1", "z", "other")
	h, err := w.PublishDraft(t.Context(), ref, ada, "joined")
	m, err2 := w.Manifest(t.Context(), h.Digest)
	if err != nil || err2 != nil || len(m.Entries) != 3 || h.Previous != now.Digest {
		t.Fatalf("%+v, %v, %v", h, err, err2)
	}

	w.stage("c", "mine")
	w.publish("a", "1", "c", "theirs")
	if _, err := w.PublishDraft(t.Context(), ref, ada, ""); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "c") {
		t.Errorf("both wrote c: %v", err)
	}
	if err := w.DropDraft(t.Context(), ref, ada); err != nil {
		t.Errorf("the draft did not stay: %v", err)
	}
}

func TestADraftNobodyTouchesIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.publish("a", "1")
	w.stage("b", "2")
	if err := w.ExpireDrafts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Draft(t.Context(), ref, ada); err != nil {
		t.Errorf("a fresh one: %v", err)
	}
	w.mu.Lock()
	w.clock = w.clock.Add(versions.DraftLife + time.Minute)
	w.mu.Unlock()
	if err := w.ExpireDrafts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Draft(t.Context(), ref, ada); !errs.Is(err, errs.NotFound) {
		t.Errorf("an old one: %v", err)
	}
}

func TestADraftStaysItsOwnersWhateverTheyAreCalled(t *testing.T) {
	w := newWorld(t)
	w.publish("a", "1")
	ada := versions.Asked{Author: "ada", Owner: "1"}
	stage := func(by versions.Asked, path string) {
		t.Helper()
		p := w.begin()
		added := w.tree(p, path, "2")
		if _, err := p.Stage(t.Context(), ref, by, func(_ content.TemplateHead, m content.Manifest) (content.Manifest, error) {
			m.Entries = append(m.Entries, added.Entries...)
			return m, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	stage(ada, "b")
	if _, err := w.Draft(t.Context(), ref, versions.Asked{Author: "ada", Owner: "2"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("the next one of the name has the draft: %v", err)
	}
	ada.Author = "countess"
	stage(ada, "c")
	if d, err := w.Draft(t.Context(), ref, ada); err != nil || d.Edits != 2 || d.Author != "countess" {
		t.Errorf("%+v, %v", d, err)
	}
	if h, err := w.PublishDraft(t.Context(), ref, ada, ""); err != nil || h.Files != 3 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := w.Draft(t.Context(), ref, ada); !errs.Is(err, errs.NotFound) {
		t.Errorf("the draft is still there: %v", err)
	}
}
