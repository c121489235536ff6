package versions_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// define publishes a version with these variable definitions and the file f.
func (w *world) define(f string, all ...content.Variable) content.TemplateHead {
	w.Helper()
	p := w.begin()
	defer p.Close(w.Context())
	m := w.tree(p, "f", f)
	m.Variables = all
	h, err := p.Commit(w.Context(), versions.Move{Ref: ref, Manifest: m, Base: w.head().Digest, Kind: content.MoveEdit, Asked: me})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

var (
	open    = content.Variable{Key: "motd", Type: content.VariableString, Scope: content.ScopeGroup}
	guarded = content.Variable{Key: "key", Type: content.VariableString, Scope: content.ScopeGroup, Visibility: "ADMIN"}
)

func TestADefinitionIsTakenAwayOnlyByWhoIsShownItsValue(t *testing.T) {
	weaker := guarded
	weaker.Visibility = "OPERATOR"
	for name, before := range map[string][]content.Variable{"without it": {open}, "with a weaker one": {weaker, open}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			old := w.define("1", before...)
			w.define("2", open, guarded)
			same := w.define("3", open, guarded)
			for _, to := range []string{old.Digest, ""} {
				if to == "" { // the previous version, which defines it too
					if h, err := w.Rollback(t.Context(), ref, "", versions.Asked{Shown: content.VisibleToOperators}); err != nil || h.Digest == same.Digest {
						t.Errorf("to a version that has it: %+v, %v", h, err)
					}
				}
				for _, shown := range []content.Visibility{content.VisibleToAll, content.VisibleToOperators} {
					if _, err := w.Rollback(t.Context(), ref, to, versions.Asked{Shown: shown}); !errs.Is(err, errs.Denied) || errs.FieldOf(err) != "key" {
						t.Errorf("to %q by who is shown %q: %v", to, shown, err)
					}
				}
			}
			head := w.head()
			if err := w.Delete(t.Context(), ref, versions.Asked{Shown: content.VisibleToOperators}); !errs.Is(err, errs.Denied) || w.head().ModRev != head.ModRev {
				t.Errorf("deleted: %v", err)
			}
			if h, err := w.Rollback(t.Context(), ref, old.Digest, versions.Asked{Shown: content.VisibleToAdmins}); err != nil || !cmp.Equal(h.Variables, before) {
				t.Errorf("by an administrator: %+v, %v", h, err)
			}
		})
	}
}

func TestDefinitionsStayWhateverTheirTemplatesSourceBrings(t *testing.T) {
	all := []content.Variable{open, guarded}
	for name, meanwhile := range map[string]func(*world, content.TemplateHead){
		"they are the latest edit": func(*world, content.TemplateHead) {},
		"the template was rolled back": func(w *world, defined content.TemplateHead) {
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
