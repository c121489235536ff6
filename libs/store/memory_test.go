package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestMemoryEvictsFromLargestOwner(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t).Client(t)
	forgotten := 0
	m := store.NewMemory(c, keys.Operations(), store.MemoryConfig{
		Life: time.Hour, Together: time.Hour, Most: 40, Now: time.Now, Forgot: func(early, _ int) { forgotten += early },
	})
	var made []string
	remember := func(name string) {
		t.Helper()
		w, err := store.Remember(t.Context(), m, keys.Operation(name), cluster.Operation{ID: name})
		if err == nil {
			_, err = c.Commit(t.Context(), store.Txn{Writes: []store.Write{w}})
		}
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, name)
	}
	kept := func(owner string) (n int) {
		t.Helper()
		left := remembered(t.Context(), t, c)
		if len(left) > 44 {
			t.Fatalf("%d are remembered", len(left))
		}
		var of []string
		for _, name := range made {
			if strings.HasPrefix(name, store.OwnedName(owner, "")) {
				of = append(of, name)
			}
		}
		for n < len(of) && slices.Contains(left, of[len(of)-1-n]) {
			n++
		}
		for _, name := range of[:len(of)-n] {
			if slices.Contains(left, name) {
				t.Errorf("of %s an older one is remembered, and a newer one is not", owner)
			}
		}
		return n
	}
	for n := range 5 {
		remember(store.OwnedName("ann", fmt.Sprint(n)))
		remember(fmt.Sprint("OFNOOWNER", n))
	}
	for n := range 120 {
		remember(store.OwnedName("bob", fmt.Sprint(n)))
		if got := kept("ann"); got != 5 {
			t.Fatalf("after %d of bob's, %d of ann's 5 are remembered", n+1, got)
		}
	}
	for n := range 60 {
		remember(store.OwnedName("cid", fmt.Sprint(n)))
	}
	ann, bob, cid := kept("ann"), kept("bob"), kept("cid")
	if ann != 5 || bob < 10 || cid < 10 {
		t.Errorf("of ann, bob and cid %d, %d and %d are remembered: those who have many share what there is", ann, bob, cid)
	}
	if left := remembered(t.Context(), t, c); forgotten != len(made)-len(left) {
		t.Errorf("%d were told to be forgotten, of %d %d are left", forgotten, len(made), len(left))
	}
}

func remembered(ctx context.Context, t *testing.T, c *store.Client) (names []string) {
	t.Helper()
	all, _, err := store.List(ctx, c, keys.Operations())
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range all {
		names = append(names, op.ID)
	}
	return names
}
