// Package egresstest lets tests fetch from servers of their own, which are on loopback.
package egresstest

import (
	"context"
	"testing"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// loopback is the allow list of tests.
const loopback = "127.0.0.1/32"

// Loopback is a policy that also reaches servers on 127.0.0.1.
func Loopback() egress.Policy {
	return egress.Policy{Allowed: func(context.Context) (egress.Allowed, error) { return egress.Parse([]string{loopback}), nil }}
}

// AllowLoopback writes an allow list with 127.0.0.1 into the settings of a cluster, and returns
// the revision of the write.
func AllowLoopback(t testing.TB, c *store.Client) int64 {
	t.Helper()
	active, err := store.Get(t.Context(), c, store.ConfigActiveKey())
	if err != nil && !errs.Is(err, errs.NotFound) {
		t.Fatal(err)
	}
	active.Patch.AllowedEgress = &[]string{loopback}
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Replace[fleet.ConfigActive](store.ConfigActiveKey(), active, active.ModRev)}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
