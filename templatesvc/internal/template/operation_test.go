package template_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// trace is everything about templates that a change may change, operations aside.
func (w *world) trace() string {
	w.Helper()
	moves, err := w.History(w.Context(), ref)
	if err != nil {
		w.Fatal(err)
	}
	heads, _, err := store.List(w.Context(), w.c, store.TemplateHeads())
	if err != nil {
		w.Fatal(err)
	}
	drafts, _, err := store.List(w.Context(), w.c, store.TemplateDrafts())
	if err != nil {
		w.Fatal(err)
	}
	kept, err := json.MarshalIndent([]any{moves, heads, drafts}, "", " ")
	if err != nil {
		w.Fatal(err)
	}
	return fmt.Sprintf("%s %v", kept, w.versions())
}

// changes are one of each kind; all begin from a template that has been changed once,
// and of which ada has a draft.
func changes(w *world, first string) map[string]func(template.Asked) (fleet.TemplateHead, error) {
	none := func(err error) (fleet.TemplateHead, error) { return fleet.TemplateHead{}, err }
	text := "other words"
	return map[string]func(template.Asked) (fleet.TemplateHead, error){
		"rollback": func(by template.Asked) (fleet.TemplateHead, error) { return w.Rollback(w.Context(), ref, "", by) },
		"commit": func(by template.Asked) (fleet.TemplateHead, error) {
			p := w.begin()
			added := w.tree(p, "z", "new")
			return p.Commit(w.Context(), template.Move{
				Ref: ref, Base: "any", Asked: by, Kind: fleet.MoveEdit,
				Rebase: func(m *template.Move, _ fleet.TemplateHead, current fleet.Manifest) error {
					if slices.ContainsFunc(current.Entries, func(e fleet.ManifestEntry) bool { return e.Path == "z" }) {
						return errs.New(errs.AlreadyExists, "z exists")
					}
					m.Manifest = current
					m.Manifest.Entries = append(slices.Clone(current.Entries), added.Entries...)
					return nil
				},
			})
		},
		"create": func(by template.Asked) (fleet.TemplateHead, error) {
			return w.Create(w.Context(), fleet.TemplateRef{Group: "g", Name: "made"}, template.Description{}, by)
		},
		"describe": func(by template.Asked) (fleet.TemplateHead, error) {
			return w.Describe(w.Context(), ref, template.Description{Text: &text}, by)
		},
		"delete": func(by template.Asked) (fleet.TemplateHead, error) { return none(w.Delete(w.Context(), ref, by)) },
		"delete version": func(by template.Asked) (fleet.TemplateHead, error) {
			return none(w.DeleteVersion(w.Context(), ref, first, by))
		},
		"publish draft": func(by template.Asked) (fleet.TemplateHead, error) {
			by.Author = ada.Author
			return w.PublishDraft(w.Context(), ref, by, "")
		},
		"drop draft": func(by template.Asked) (fleet.TemplateHead, error) {
			by.Author = ada.Author
			return none(w.DropDraft(w.Context(), ref, by))
		},
		"stage": func(by template.Asked) (fleet.TemplateHead, error) {
			by.Author = ada.Author
			return w.begin().Stage(w.Context(), ref, by, func(_ fleet.TemplateHead, m fleet.Manifest) (fleet.Manifest, error) {
				m.Entries = m.Entries[1:]
				return m, nil
			})
		},
	}
}

func TestAChangeAskedForAgainIsNotMadeTwice(t *testing.T) {
	for name := range changes(nil, "") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.publish("a", "1", "b", "2")
			w.publish("a", "1", "b", "2", "c", "3")
			w.stage("d", "4")
			do := changes(w, first.Digest)[name]
			by := template.Asked{Author: "me", Operation: "op1"}
			made, err := do(by)
			if err != nil {
				t.Fatal(err)
			}
			after := w.trace()
			again, err := do(by)
			if err != nil || again.Digest != made.Digest {
				t.Errorf("asked again: %+v, %v; made %+v", again, err, made)
			}
			if got := w.trace(); got != after {
				t.Errorf("it was made twice:\n%s\n%s", after, got)
			}
		})
	}
}

func TestOneChangeAskedForAtTheSameTimeIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	first := w.publish("f", "1")
	w.publish("f", "2")
	w.publish("f", "3")
	second := w.head().Previous
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			h, err := w.Rollback(t.Context(), ref, "", template.Asked{Operation: "op1"})
			if err != nil || h.Digest != second {
				t.Errorf("%+v, %v", h, err)
			}
		})
	}
	wg.Wait()
	if h := w.head(); h.Digest != second || h.Move != 4 || first.Digest == second {
		t.Errorf("the head is %+v", h)
	}
}

func TestAChangeOfWhatMovedMeanwhileIsRefused(t *testing.T) {
	for name := range changes(nil, "") {
		if name == "create" || name == "delete version" {
			continue // they change nothing that was there
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.publish("a", "1", "b", "2")
			w.publish("a", "1", "b", "2", "c", "3")
			w.stage("d", "4")
			before := w.trace()
			if _, err := changes(w, first.Digest)[name](template.Asked{Revision: 1}); !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != client.Stale {
				t.Errorf("refused with %v", err)
			}
			if got := w.trace(); got != before {
				t.Errorf("a refused change left %s, before %s", got, before)
			}
		})
	}
}

func TestOperationsAreForgottenAfterAnHour(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Create(t.Context(), ref, template.Description{}, template.Asked{Operation: "op1"}); err != nil {
		t.Fatal(err)
	}
	left := func() int {
		t.Helper()
		if err := w.Retire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		n, err := store.Count(t.Context(), w.c, store.TemplateOperations())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := left(); n != 1 {
		t.Errorf("%d are remembered at once", n)
	}
	w.clock = w.clock.Add(2 * time.Hour)
	if n := left(); n != 0 {
		t.Errorf("%d are remembered after two hours", n)
	}
}
