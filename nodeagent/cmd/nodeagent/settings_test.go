package main

import (
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestAStopHasToBeGivenTime(t *testing.T) {
	for limit, refused := range map[time.Duration]bool{-time.Second: true, 0: true, time.Second: false} {
		problems := (&settings{Node: "n", StopTimeout: limit}).Validate()
		got := slices.ContainsFunc(problems, func(err error) bool { return errs.FieldOf(err) == "stop-timeout" })
		if got != refused {
			t.Errorf("%v refused: %v", limit, got)
		}
	}
}
