package program

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestServicesRetryToJoinAtDifferentMoments(t *testing.T) {
	storetest.RetriesDiffer(t, time.Second, func(ctx context.Context, c *store.Client) {
		_ = join(ctx, Env{Client: c, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	})
}
