package cli_test

import (
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// TestOneCluster runs commands that do not disturb each other on one cluster.
func TestOneCluster(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c cluster.Cluster)
	}{
		{"files", testFiles},
		{"backups", testBackups},
		{"edits", testEdits},
		{"players", testPlayers},
		{"pipes", testPipes},
		{"versions", testVersions},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, c)
		})
	}
}
