// Package egresstest lets tests fetch from their own servers on loopback.
package egresstest

import (
	"context"
	"testing"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// loopback is the allow list of tests.
const loopback = "127.0.0.1/32"

// Loopback returns a policy that also allows 127.0.0.1.
func Loopback() egress.Policy {
	return egress.Policy{Allowed: func(context.Context) (egress.Allowed, error) { return egress.Parse([]string{loopback}), nil }}
}

// AllowLoopback adds 127.0.0.1 to the cluster's allow list and returns the revision of the write.
func AllowLoopback(t testing.TB, c *store.Client) int64 {
	t.Helper()
	active, err := store.Get(t.Context(), c, keys.ConfigActive())
	if err != nil && !errs.Is(err, errs.NotFound) {
		t.Fatal(err)
	}
	active.Patch.AllowedEgress = &[]string{loopback}
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Replace[cluster.ConfigActive](keys.ConfigActive(), active, active.ModRev)}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
