package main

import (
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/program/programtest"
)

func TestItStartsInNoOtherCluster(t *testing.T) {
	dir := t.TempDir()
	programtest.RefusesOtherClusters(t, run, "--listen", "127.0.0.1:0", "--templates-dir", dir, "--blobs-dir", filepath.Join(dir, "blobs"))
}

func TestItTakesItsClock(t *testing.T) {
	dir := t.TempDir()
	programtest.TakesItsClock(t, run, programtest.OfReplica("templatesvc"), "--listen", "127.0.0.1:0", "--templates-dir", dir, "--blobs-dir", filepath.Join(dir, "blobs"))
}

func TestItWarnsOfHistoryThatIsNeverCompacted(t *testing.T) {
	dir := t.TempDir()
	programtest.WarnsOfHistory(t, run, "--listen", "127.0.0.1:0", "--templates-dir", dir, "--blobs-dir", filepath.Join(dir, "blobs"))
}
