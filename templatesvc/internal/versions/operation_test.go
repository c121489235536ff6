package versions_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// trace describes the whole state of templates, without the operations.
func (w *world) trace() string {
	w.Helper()
	moves, err := w.History(w.Context(), ref)
	if err != nil {
		w.Fatal(err)
	}
	heads, _, err := store.List(w.Context(), w.c, keys.TemplateHeads())
	if err != nil {
		w.Fatal(err)
	}
	drafts, _, err := store.List(w.Context(), w.c, keys.TemplateDrafts())
	if err != nil {
		w.Fatal(err)
	}
	kept, err := json.MarshalIndent([]any{moves, heads, drafts}, "", " ")
	if err != nil {
		w.Fatal(err)
	}
	return fmt.Sprintf("%s %v", kept, w.versions())
}

// changes returns one change of each kind. Each starts with a template that was changed
// once and of which ada has a draft.
func changes(w *world, first string) map[string]func(versions.Asked) (content.TemplateHead, error) {
	none := func(err error) (content.TemplateHead, error) { return content.TemplateHead{}, err }
	text := "other words"
	return map[string]func(versions.Asked) (content.TemplateHead, error){
		"rollback": func(by versions.Asked) (content.TemplateHead, error) { return w.Rollback(w.Context(), ref, "", by) },
		"commit": func(by versions.Asked) (content.TemplateHead, error) {
			p := w.begin()
			added := w.tree(p, "z", "new")
			return p.Commit(w.Context(), versions.Move{
				Ref: ref, Base: "any", Asked: by, Kind: content.MoveEdit,
				Rebase: func(m *versions.Move, _ content.TemplateHead, current content.Manifest) error {
					if slices.ContainsFunc(current.Entries, func(e content.ManifestEntry) bool { return e.Path == "z" }) {
						return errs.New(errs.AlreadyExists, "z exists")
					}
					m.Manifest = current
					m.Manifest.Entries = append(slices.Clone(current.Entries), added.Entries...)
					return nil
				},
			})
		},
		"create": func(by versions.Asked) (content.TemplateHead, error) {
			return w.Create(w.Context(), content.TemplateRef{Group: "g", Name: "made"}, versions.Description{}, by)
		},
		"describe": func(by versions.Asked) (content.TemplateHead, error) {
			return w.Describe(w.Context(), ref, versions.Description{Text: &text}, by)
		},
		"delete": func(by versions.Asked) (content.TemplateHead, error) { return none(w.Delete(w.Context(), ref, by)) },
		"delete version": func(by versions.Asked) (content.TemplateHead, error) {
			return none(w.DeleteVersion(w.Context(), ref, first, by))
		},
		"publish draft": func(by versions.Asked) (content.TemplateHead, error) {
			by.Author, by.Owner = ada.Author, ada.Owner
			return w.PublishDraft(w.Context(), ref, by, "")
		},
		"drop draft": func(by versions.Asked) (content.TemplateHead, error) {
			by.Author, by.Owner = ada.Author, ada.Owner
			return none(w.DropDraft(w.Context(), ref, by))
		},
		"stage": func(by versions.Asked) (content.TemplateHead, error) {
			by.Author, by.Owner = ada.Author, ada.Owner
			return w.begin().Stage(w.Context(), ref, by, func(_ content.TemplateHead, m content.Manifest) (content.Manifest, error) {
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
			by := versions.Asked{Author: "me", Operation: "op1"}
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
			h, err := w.Rollback(t.Context(), ref, "", versions.Asked{Operation: "op1"})
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
			continue // these change nothing that existed
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.publish("a", "1", "b", "2")
			w.publish("a", "1", "b", "2", "c", "3")
			w.stage("d", "4")
			before := w.trace()
			if _, err := changes(w, first.Digest)[name](versions.Asked{Revision: 1}); !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != client.Stale {
				t.Errorf("refused with %v", err)
			}
			if got := w.trace(); got != before {
				t.Errorf("a refused change left %s, before %s", got, before)
			}
		})
	}
}

// remembered returns the IDs of the remembered operations, oldest first.
func (w *world) remembered() (ids []string) {
	w.Helper()
	all, _, err := store.List(w.Context(), w.c, keys.TemplateOperations())
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(all, func(a, b content.TemplateOperation) int { return cmp.Compare(a.CreateRev, b.CreateRev) })
	for _, o := range all {
		ids = append(ids, o.ID)
	}
	return ids
}

// describe changes the template's description with an operation ID.
func (w *world) describe(operation, text string) error {
	_, err := w.Describe(w.Context(), ref, versions.Description{Text: &text}, versions.Asked{Operation: operation})
	return err
}

func TestAnotherChangeUnderAUsedNameIsRefused(t *testing.T) {
	for name := range changes(nil, "") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.publish("a", "1", "b", "2")
			w.publish("a", "1", "b", "2", "c", "3")
			w.stage("d", "4")
			if err := w.describe("op1", "words"); err != nil {
				t.Fatal(err)
			}
			before := w.trace()
			_, err := changes(w, first.Digest)[name](versions.Asked{Author: "me", Operation: "op1"})
			if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != client.Reused {
				t.Errorf("refused with %v", err)
			}
			if got := w.trace(); got != before || w.doomed() != 0 {
				t.Errorf("a refused change left %s and %d doomed, before %s", got, w.doomed(), before)
			}
		})
	}
}

func TestTheSameChangeOfAnotherTemplateIsAnother(t *testing.T) {
	w := newWorld(t)
	by := versions.Asked{Operation: "op1"}
	if _, err := w.Create(t.Context(), ref, versions.Description{}, by); err != nil {
		t.Fatal(err)
	}
	other := content.TemplateRef{Group: "g", Name: "other"}
	if _, err := w.Create(t.Context(), other, versions.Description{}, by); errs.FieldOf(err) != client.Reused {
		t.Errorf("refused with %v", err)
	}
	if _, err := w.Head(t.Context(), other); !errs.Is(err, errs.NotFound) {
		t.Errorf("it was made: %v", err)
	}
}

func TestAnotherKindOfChangeIsAnother(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "1")
	w.stage("g", "2")
	by := versions.Asked{Author: ada.Author, Owner: ada.Owner, Operation: "op1"}
	if err := w.DropDraft(t.Context(), ref, by); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), ref, by); errs.FieldOf(err) != client.Reused {
		t.Errorf("refused with %v", err)
	}
	if w.head().ModRev == 0 {
		t.Error("it was made")
	}
}

func TestAChangeThatWouldChangeNothingNowIsAnsweredWithWhatItMade(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "1")
	w.stage("g", "2")
	by := versions.Asked{Author: ada.Author, Owner: ada.Owner, Operation: "op1"}
	made, err := w.PublishDraft(t.Context(), ref, by, "")
	if err != nil {
		t.Fatal(err)
	}
	w.publish("f", "3") // and the draft no longer exists
	if h, err := w.PublishDraft(t.Context(), ref, by, ""); err != nil || h.Digest != made.Digest {
		t.Errorf("answered with %+v, %v; made %+v", h, err, made)
	}
}

// leaseOf returns the lease of an operation and the lease's TTL in seconds.
func (w *world) leaseOf(operation string) (id, ttl int64) {
	w.Helper()
	got, err := w.etcd.Raw().Get(w.Context(), keys.TemplateOperation(operation).String())
	if err != nil || len(got.Kvs) != 1 {
		w.Fatalf("%+v, %v", got, err)
	}
	all, err := w.etcd.Raw().Leases(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, l := range all.Leases {
		if int64(l.ID) != got.Kvs[0].Lease {
			continue
		}
		left, err := w.etcd.Raw().TimeToLive(w.Context(), l.ID)
		if err != nil {
			w.Fatal(err)
		}
		return got.Kvs[0].Lease, left.GrantedTTL
	}
	w.Fatalf("operation %s is on no lease", operation)
	return 0, 0
}

func TestAnOperationIsForgottenByItselfAfterAnHour(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "1")
	var leases []int64
	for n := range 3 {
		id := fmt.Sprint("op", n)
		if err := w.describe(id, id); err != nil {
			t.Fatal(err)
		}
		lease, ttl := w.leaseOf(id)
		if ttl < 60*60 || ttl > 70*60 {
			t.Errorf("%s is remembered for %d s", id, ttl)
		}
		leases = append(leases, lease)
		if n == 1 {
			w.clock = w.clock.Add(6 * time.Minute)
		}
	}
	if leases[0] != leases[1] || leases[1] == leases[2] {
		t.Errorf("the leases are %v: want one for what is of the same minutes", leases)
	}
}

func TestChangesGoOnWhenTheLeaseOfOperationsHasEnded(t *testing.T) {
	for name := range changes(nil, "") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.publish("a", "1", "b", "2")
			w.publish("a", "1", "b", "2", "c", "3")
			w.stage("d", "4")
			if err := w.describe("op1", "words"); err != nil {
				t.Fatal(err)
			}
			w.etcd.RevokeAll(t) // as if the process had been paused for hours
			if _, err := changes(w, first.Digest)[name](versions.Asked{Author: "me", Operation: "op2"}); err != nil {
				t.Error(err)
			}
			if got := w.remembered(); !slices.Equal(got, []string{"op2"}) {
				t.Errorf("%v are remembered", got)
			}
		})
	}
}

func TestNoMoreOperationsAreRememberedThanABound(t *testing.T) {
	w := newWorld(t)
	w.publish("f", "1")
	w.RememberAtMost(40)
	for n := range 120 {
		if err := w.describe(fmt.Sprint("op", n), fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
		if got := len(w.remembered()); got > 44 {
			t.Fatalf("%d are remembered", got)
		}
	}
	got := w.remembered()
	if len(got) < 30 || got[len(got)-1] != "op119" || got[0] != fmt.Sprint("op", 120-len(got)) {
		t.Errorf("the latest are %v", got)
	}
}
