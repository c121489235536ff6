package view

import (
	"context"
	"log/slog"

	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Replay calls listen as for a subscriber in the past: first with the state at revision from as a
// relisted batch, then with every change up to revision to. It reads the whole store at that
// revision. Errors are as in store.Client.History; batches before an error are complete.
func Replay(ctx context.Context, c *store.Client, log *slog.Logger, from, to int64, listen func(Batch)) error {
	v := New(c, log)
	v.subs = []func(Batch){listen}
	return c.History(ctx, keys.Root, from, to, &builder{view: v, keys: map[string]int64{}})
}
