package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

var (
	ownSecret   = strings.Repeat("o", 32)
	otherSecret = strings.Repeat("x", 32)
)

// joinWith joins like a program with a secret.
func joinWith(t *testing.T, etcd *storetest.Etcd, secret string) error {
	t.Helper()
	c, err := store.Dial([]string{etcd.Endpoint}, store.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Join(t.Context(), time.Unix(1, 0))
	return err
}

func wantRefused(t *testing.T, err error) {
	t.Helper()
	if !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != "cluster.secret" || !strings.Contains(errs.MessageOf(err), "cluster.secret differs from the secret of cluster ") {
		t.Errorf("another secret: %v, want Conflict that names cluster.secret", err)
	}
}

func TestAnotherSecretIsRefused(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	for _, secret := range []string{"", ownSecret, ownSecret, ""} {
		if err := joinWith(t, etcd, secret); err != nil {
			t.Fatalf("with %q: %v", secret, err)
		}
	}
	wantRefused(t, joinWith(t, etcd, otherSecret))
	if err := joinWith(t, etcd, ownSecret); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
	if keys := storetest.Holding(t, etcd.Endpoint, ownSecret); len(keys) > 0 {
		t.Errorf("etcd holds the secret itself in %v", keys)
	}
	other := storetest.Start(t)
	if err := joinWith(t, other, ownSecret); err != nil {
		t.Fatal(err)
	}
	a, b := keptIn(t, etcd), keptIn(t, other)
	if string(a.Hash) == string(b.Hash) {
		t.Error("two clusters with one secret keep the same fingerprint: it has no salt")
	}
}

func keptIn(t *testing.T, etcd *storetest.Etcd) cluster.SecretFingerprint {
	t.Helper()
	kept, err := store.Get(t.Context(), etcd.Client(t), keys.SecretFingerprint())
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func TestARefusedClientChangesNothing(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	if err := joinWith(t, etcd, ownSecret); err != nil {
		t.Fatal(err)
	}
	before, err := etcd.Client(t).Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, joinWith(t, etcd, otherSecret))
	if after, err := etcd.Client(t).Revision(t.Context()); err != nil || after != before {
		t.Errorf("revision %d, %v; want %d", after, err, before)
	}
}

func TestConcurrentFirstJoinsAgreeOnOneSecret(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	var mu sync.Mutex
	joined := map[string]int{}
	var wg sync.WaitGroup
	for i := range 8 {
		secret := []string{ownSecret, otherSecret}[i%2]
		wg.Go(func() {
			err := joinWith(t, etcd, secret)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				joined[secret]++
			case errs.FieldOf(err) != "cluster.secret":
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if len(joined) != 1 || joined[ownSecret]+joined[otherSecret] != 4 {
		t.Errorf("%v joined, want the four of one secret", joined)
	}
}

// TestFirstJoinAfterUpgradeRequiresSecret covers clusters from before fingerprints. Their signing key
// is encrypted with the secret.
func TestFirstJoinAfterUpgradeRequiresSecret(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	if err := joinWith(t, etcd, ""); err != nil {
		t.Fatal(err)
	}
	box := seal.NewBox(ownSecret, "jwt")
	write := store.Create(keys.SealedKey("jwt"), account.SealedKey{ID: "jwt", Sealed: box.Seal([]byte("key"))})
	if _, err := etcd.Client(t).Commit(t.Context(), store.Txn{Writes: []store.Write{write}}); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, joinWith(t, etcd, otherSecret))
	if _, err := store.Get(t.Context(), etcd.Client(t), keys.SecretFingerprint()); !errs.Is(err, errs.NotFound) {
		t.Errorf("the refused client left a fingerprint: %v", err)
	}
	if err := joinWith(t, etcd, ownSecret); err != nil {
		t.Fatal(err)
	}
	keptIn(t, etcd)
	wantRefused(t, joinWith(t, etcd, otherSecret))
}

// TestRejoinComparesSecretAgain covers an etcd that is replaced while a client runs.
func TestRejoinComparesSecretAgain(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c, err := store.Dial([]string{etcd.Endpoint}, store.Options{Secret: ownSecret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	join := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		_, err := c.Join(ctx, time.Unix(1, 0))
		return err
	}
	for range 2 {
		if err := join(); err != nil {
			t.Fatal(err)
		}
	}
	etcd.Clear(t)
	if err := joinWith(t, etcd, otherSecret); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, join())
}
