package main

import (
	"testing"

	"github.com/orreryhq/orrery/libs/program/programtest"
)

func TestItStartsInNoOtherCluster(t *testing.T) { programtest.RefusesOtherClusters(t, run) }

func TestItTakesItsClock(t *testing.T) {
	programtest.TakesItsClock(t, run, programtest.OfReplica("scheduler"))
}

func TestItWarnsOfHistoryThatIsNeverCompacted(t *testing.T) {
	programtest.WarnsOfHistory(t, run)
}
