package view

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// inheriting returns a view of a child with values of its parent, whose template defines KEY with the
// given visibility, and of many more templates with variables. change rewrites that template.
func inheriting(t testing.TB, templates int, shown content.Visibility) (v *View, change func(content.Visibility)) {
	t.Helper()
	rev := int64(1)
	pair := func(key string, record any) store.KeyValue {
		b, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		return store.KeyValue{Key: key, Value: b, CreateRev: 1, ModRev: rev}
	}
	head := func(name string, shown content.Visibility) store.KeyValue {
		ref := content.TemplateRef{Group: "x", Name: name}
		return pair(keys.TemplateHead(ref).String(), content.TemplateHead{
			TemplateRef: ref, Digest: "d", Variables: []content.Variable{{Key: "KEY", Visibility: string(shown)}},
		})
	}
	parent, child := fleet.Group{Name: "parent", Spec: fleet.DefaultSpec()}, fleet.Group{Name: "child", Spec: fleet.DefaultSpec()}
	parent.Spec.Variables = map[string]string{"KEY": "value"}
	parent.Spec.Templates.AllOf = []content.TemplateLayer{{TemplateRef: content.TemplateRef{Group: "x", Name: "own"}}}
	child.Spec.Parent = "parent"
	kvs := []store.KeyValue{
		pair(keys.Group("parent").String(), parent), pair(keys.Group("child").String(), child), head("own", shown),
	}
	for n := range templates {
		kvs = append(kvs, head(fmt.Sprint("other-", n), content.VisibleToAll))
	}
	v = New(nil, slog.New(slog.DiscardHandler))
	build := &builder{view: v, keys: map[string]int64{}}
	build.Reset(kvs, rev)
	return v, func(shown content.Visibility) {
		rev++
		build.Apply([]store.Change{{KeyValue: head("own", shown)}}, rev)
	}
}

func TestWholeHidesParentValues(t *testing.T) {
	v, change := inheriting(t, 10, content.VisibleToAdmins)
	before := v.Snapshot()
	shown := func(s *Snapshot) content.Visibility {
		child, _ := s.Groups.Get("child")
		return s.Whole(child).Hidden["KEY"]
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := shown(before); got != content.VisibleToAdmins {
				t.Errorf("it is shown to %q", got)
			}
		})
	}
	change(content.VisibleToOperators)
	all.Wait()
	if got := shown(v.Snapshot()); got != content.VisibleToOperators {
		t.Errorf("after the template was changed it is shown to %q", got)
	}
	if got := shown(before); got != content.VisibleToAdmins {
		t.Errorf("in the snapshot from before the change it is shown to %q", got)
	}
}

func TestWholeCostIgnoresOtherTemplates(t *testing.T) {
	cost := func(templates int) float64 {
		v, _ := inheriting(t, templates, content.VisibleToAdmins)
		s := v.Snapshot()
		child, _ := s.Groups.Get("child")
		return testing.AllocsPerRun(20, func() { s.Whole(child) })
	}
	if few, many := cost(1), cost(2000); many > few+2 {
		t.Errorf("%v allocations with 2000 templates, %v with one", many, few)
	}
}
