package main

import (
	"slices"
	"testing"
	"time"
)

func TestAFrameCountsNestedWorkOnce(t *testing.T) {
	events := []traceEvent{
		{Name: "Layout", Pid: 1, Tid: 2, Ts: 150, Dur: 50}, // inside of the script
		{Name: "FireAnimationFrame", Pid: 1, Tid: 2, Ts: 100, Dur: 200},
		{Name: "UpdateLayoutTree", Pid: 1, Tid: 2, Ts: 300, Dur: 40},
		{Name: "Paint", Pid: 1, Tid: 2, Ts: 340, Dur: 1000}, // neither script nor layout
		{Name: frameEnd, Pid: 1, Tid: 2, Ts: 1400, Dur: 10},
		{Name: "FunctionCall", Pid: 1, Tid: 9, Ts: 1500, Dur: 30}, // another thread
		{Name: frameEnd, Pid: 1, Tid: 2, Ts: 2400, Dur: 10},
	}
	want := []time.Duration{240 * time.Microsecond, 0}
	if got := frameTimes(events); !slices.Equal(got, want) {
		t.Errorf("frames took %v, want %v", got, want)
	}
}

func TestOnlyCompleteSecondsHaveFrames(t *testing.T) {
	if got := perSecond([]float64{0, 500, 999, 1000, 1999, 2100, 2300}); !slices.Equal(got, []float64{3, 2}) {
		t.Errorf("frames per second: %v", got)
	}
}

func TestAFailureOfTheDriverEndsTheMeasurement(t *testing.T) {
	var done []string
	err := asTest(func(s testing.TB) error {
		s.Cleanup(func() { done = append(done, "first") })
		s.Cleanup(func() { done = append(done, "second") })
		s.Fatalf("no %s", "page")
		done = append(done, "went on")
		return nil
	})
	if err == nil || err.Error() != "no page" || !slices.Equal(done, []string{"second", "first"}) {
		t.Errorf("%v after %v", err, done)
	}
}
