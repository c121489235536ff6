package view

import (
	"context"
	"log/slog"

	"github.com/orreryhq/orrery/libs/store"
)

// Replay tells listen what a subscriber would have heard of the past: first the
// state at revision from as a relisted batch, then every change up to revision
// to. It costs a full read of the store at that revision. Errors as of
// store.Client.History; batches heard before an error were complete.
func Replay(ctx context.Context, c *store.Client, log *slog.Logger, from, to int64, listen func(Batch)) error {
	v := New(c, log)
	v.subs = []func(Batch){listen}
	return c.History(ctx, store.Root, from, to, &builder{view: v, keys: map[string]int64{}})
}
