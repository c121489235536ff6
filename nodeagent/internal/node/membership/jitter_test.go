package membership

import (
	"context"
	"log/slog"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestJoinRetriesAreJittered(t *testing.T) {
	storetest.RetriesDiffer(t, maxPause, func(ctx context.Context, c *store.Client) {
		_ = New(Config{Store: c, Record: fleet.Node{ID: node}, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	})
}
