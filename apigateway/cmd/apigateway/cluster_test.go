package main

import (
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/program/programtest"
)

func TestItStartsInNoOtherCluster(t *testing.T) {
	dir := t.TempDir()
	programtest.RefusesOtherClusters(t, run, "--listen", "127.0.0.1:0", "--admin-password-file", filepath.Join(dir, "password"))
}

func TestItTakesItsClock(t *testing.T) {
	dir := t.TempDir()
	programtest.TakesItsClock(t, run, programtest.OfReplica("apigateway"), "--listen", "127.0.0.1:0", "--admin-password-file", filepath.Join(dir, "password"))
}

func TestItWarnsOfHistoryThatIsNeverCompacted(t *testing.T) {
	dir := t.TempDir()
	programtest.WarnsOfHistory(t, run, "--listen", "127.0.0.1:0", "--admin-password-file", filepath.Join(dir, "password"))
}
