package main

import (
	"bytes"
	"io"
	"strings"
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

func TestABoundOfTheLoadThatNoNodeCanHaveIsRefused(t *testing.T) {
	for _, value := range []string{"0", "-1", "101"} {
		var stderr bytes.Buffer
		code := run([]string{"--max-cpu", value}, nil, io.Discard, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), "max-cpu must be between 1 and 100") {
			t.Errorf("%s: exit %d, %s", value, code, &stderr)
		}
	}
}
