package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/program/programtest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestItStartsInNoOtherCluster(t *testing.T) {
	dir := t.TempDir()
	programtest.RefusesOtherClusters(t, run, "--node", "n", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "node"))
}

func TestItTakesItsClock(t *testing.T) {
	startedAt := func(ctx context.Context, c *store.Client) (time.Time, error) {
		s, err := store.Get(ctx, c, keys.NodeSession("n"))
		return s.StartedAt, err
	}
	programtest.TakesItsClock(t, run, startedAt, "--node", "n", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "node"))
}

func TestItWarnsOfHistoryThatIsNeverCompacted(t *testing.T) {
	programtest.WarnsOfHistory(t, run, "--node", "n", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "node"))
}
