package template_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// define replaces the definitions of the template's variables, and its files by f.
func (w *world) define(f string, all ...fleet.Variable) fleet.TemplateHead {
	w.Helper()
	p := w.begin()
	defer p.Close(w.Context())
	m := w.tree(p, "f", f)
	m.Variables = all
	h, err := p.Commit(w.Context(), template.Move{Ref: ref, Manifest: m, Base: w.head().Digest, Kind: fleet.MoveEdit, Asked: me})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

var (
	open    = fleet.Variable{Key: "motd", Type: fleet.VariableString, Scope: fleet.ScopeGroup}
	guarded = fleet.Variable{Key: "key", Type: fleet.VariableString, Scope: fleet.ScopeGroup, Visibility: "ADMIN"}
)

func TestADefinitionIsTakenAwayOnlyByWhoIsShownItsValue(t *testing.T) {
	weaker := guarded
	weaker.Visibility = "OPERATOR"
	for name, before := range map[string][]fleet.Variable{"without it": {open}, "with a weaker one": {weaker, open}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			old := w.define("1", before...)
			w.define("2", open, guarded)
			same := w.define("3", open, guarded)
			for _, to := range []string{old.Digest, ""} {
				if to == "" { // the one before, which has it too
					if h, err := w.Rollback(t.Context(), ref, "", template.Asked{Shown: fleet.VisibleToOperators}); err != nil || h.Digest == same.Digest {
						t.Errorf("to a version that has it: %+v, %v", h, err)
					}
				}
				for _, shown := range []fleet.Visibility{fleet.VisibleToAll, fleet.VisibleToOperators} {
					if _, err := w.Rollback(t.Context(), ref, to, template.Asked{Shown: shown}); !errs.Is(err, errs.Denied) || errs.FieldOf(err) != "key" {
						t.Errorf("to %q by who is shown %q: %v", to, shown, err)
					}
				}
			}
			head := w.head()
			if err := w.Delete(t.Context(), ref, template.Asked{Shown: fleet.VisibleToOperators}); !errs.Is(err, errs.Denied) || w.head().ModRev != head.ModRev {
				t.Errorf("deleted: %v", err)
			}
			if h, err := w.Rollback(t.Context(), ref, old.Digest, template.Asked{Shown: fleet.VisibleToAdmins}); err != nil || !cmp.Equal(h.Variables, before) {
				t.Errorf("by an administrator: %+v, %v", h, err)
			}
		})
	}
}

func TestDefinitionsStayWhateverTheirTemplatesSourceBrings(t *testing.T) {
	all := []fleet.Variable{open, guarded}
	for name, meanwhile := range map[string]func(*world, fleet.TemplateHead){
		"they are the latest edit": func(*world, fleet.TemplateHead) {},
		"the template was rolled back": func(w *world, defined fleet.TemplateHead) {
			w.define("edited", all...)
			if _, err := w.Rollback(w.Context(), ref, defined.Digest, me); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			source(w, "f", "1")
			meanwhile(w, w.define("1", all...))
			for _, content := range []string{"2", "3"} {
				if h, moved := source(w, "f", content); !moved || !cmp.Equal(h.Variables, all) {
					t.Errorf("after %s: %+v", content, h.Variables)
				}
			}
		})
	}
	t.Run("it was made through the API", func(t *testing.T) {
		w := newWorld(t)
		w.define("1", all...)
		if h, moved := source(w, "f", "2"); !moved || !cmp.Equal(h.Variables, all) {
			t.Errorf("taken over with %+v", h.Variables)
		}
	})
}
