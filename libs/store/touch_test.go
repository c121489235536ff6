package store_test

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestTouchInvalidatesEarlierDecisions(t *testing.T) {
	t.Parallel()
	c, faults := storetest.Start(t).Faulty(t)
	alloc := fleet.Alloc{Node: "n1"}
	key, group := keys.Alloc("n1"), keys.Group("lobby")
	commit := func(writes ...store.Write) (int64, error) { return c.Commit(t.Context(), store.Txn{Writes: writes}) }
	must := func(rev int64, err error) int64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	must(commit(store.Touch(key, alloc), store.Create(group, fleet.Group{})))
	decided := must(commit(store.Touch(key, alloc)))
	must(commit(store.Touch(key, alloc)))
	if _, err := commit(store.Replace(key, alloc, decided)); !errs.Is(err, errs.Conflict) {
		t.Errorf("what was decided before the touch: %v", err)
	}
	_, err := commit(store.Touch(key, alloc), store.Create(group, fleet.Group{}))
	if lost := store.Lost(err); !errs.Is(err, errs.AlreadyExists) || lost == nil || !slices.Equal(lost.Keys, []string{group.String()}) {
		t.Errorf("a touch beside a create that failed: %v", err)
	}
	faults.LoseAnswer(key.String(), false)
	rev := must(commit(store.Touch(key, alloc), store.Create(keys.Group("other"), fleet.Group{})))
	if have, err := store.Get(t.Context(), c, key); err != nil || have.ModRev != rev {
		t.Errorf("with a lost answer: revision %d, it stands at %d, %v", rev, have.ModRev, err)
	}
	must(commit(store.Forget(key)))
	must(commit(store.Forget(key), store.Create(keys.Group("third"), fleet.Group{})))
	if _, err := store.Get(t.Context(), c, key); !errs.Is(err, errs.NotFound) {
		t.Errorf("what was forgotten: %v", err)
	}
	if _, err := commit(store.Replace(key, alloc, rev)); !errs.Is(err, errs.Conflict) {
		t.Errorf("what was decided before it was forgotten: %v", err)
	}
}
