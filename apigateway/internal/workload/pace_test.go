package workload

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestEachInstanceHasItsOwnPaceInEachWindow(t *testing.T) {
	now := time.Unix(1, 0)
	p := &pace{limit: 2, window: time.Minute, now: func() time.Time { return now }}
	for _, step := range []struct {
		id   fleet.InstanceID
		over bool
	}{{"a", false}, {"a", false}, {"a", true}, {"b", false}} {
		if _, over := p.count(step.id); over != step.over {
			t.Errorf("%s: over is %v", step.id, over)
		}
	}
	now = now.Add(59 * time.Second)
	if wait, over := p.count("a"); !over || wait != time.Second {
		t.Errorf("over is %v, wait %v", over, wait)
	}
	now = now.Add(time.Second)
	if _, over := p.count("a"); over || len(p.counts) != 1 {
		t.Errorf("over is %v in the next window, of which %v is kept", over, p.counts)
	}
}
