package main

import (
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/program/programtest"
)

func TestItStartsInNoOtherCluster(t *testing.T) {
	dir := t.TempDir()
	programtest.RefusesOtherClusters(t, run, "--node", "n", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "node"))
}
