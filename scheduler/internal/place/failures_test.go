package place_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// twoNodes returns a model with two nodes. One scores higher in every part.
func twoNodes() *place.Model {
	return model(node("big", func(n *place.Node) { n.Capacity.MemoryMiB = 64_000 }), node("small", labelled("slow", "yes")))
}

func of(g fleet.GroupName, revision int64) *place.Request {
	return request(func(r *place.Request) {
		r.Group, r.Plan.GroupRevision = g, revision
		r.Plan.Where.Prefer = []fleet.Preference{{Label: "!slow", Weight: 100}}
	})
}

func chosen(t *testing.T, m *place.Model, r *place.Request) place.Choice {
	t.Helper()
	c, u := m.Place(r)
	if u != nil {
		t.Fatal(u.Message)
	}
	m.Release(c.Hold)
	return c
}

func TestANodeThatFailedFiveTimesIsAvoidedForFiveMinutes(t *testing.T) {
	m, r, began := twoNodes(), of("lobby", 1), time.Unix(1_000_000, 0)
	for n := range 5 {
		if c := chosen(t, m, r); c.Node != "big" {
			t.Fatalf("after %d failures: %s", n, c.Node)
		}
		m.Failed("big", "lobby", 1, began.Add(time.Duration(n)*time.Minute))
	}
	steps := []struct {
		after time.Duration
		want  fleet.NodeID
	}{{4 * time.Minute, "small"}, {place.FailureWindow - time.Second, "small"}, {place.FailureWindow, "big"}, {time.Hour, "big"}}
	for _, s := range steps {
		m.Expire(began.Add(s.after))
		if c := chosen(t, m, r); c.Node != s.want {
			t.Errorf("after %s: %s, want %s", s.after, c.Node, s.want)
		}
	}
}

func TestOtherGroupsAndRevisionsDoNotAvoidANode(t *testing.T) {
	m := twoNodes()
	for range 5 {
		m.Failed("big", "lobby", 1, time.Unix(1_000_000, 0))
	}
	for _, r := range []*place.Request{of("lobby", 2), of("arena", 1)} {
		if c := chosen(t, m, r); c.Node != "big" {
			t.Errorf("%s of revision %d goes to %s", r.Group, r.Plan.GroupRevision, c.Node)
		}
	}
}

func TestANodeThatFailsIsStillBetterThanNone(t *testing.T) {
	m := model(node("only"))
	for range 1000 { // more than maxFailures
		m.Failed("only", "lobby", 1, time.Unix(1_000_000, 0))
	}
	c := chosen(t, m, of("lobby", 1))
	if parts := c.Score.Parts(); parts["failures"] != -1000 {
		t.Errorf("%v", parts)
	}
}

func TestFailuresOutliveANodesReturn(t *testing.T) {
	m := twoNodes()
	for range 5 {
		m.Failed("big", "lobby", 1, time.Unix(1_000_000, 0))
	}
	m.RemoveNode("big")
	m.SetNode(node("big", func(n *place.Node) { n.Capacity.MemoryMiB = 64_000 }), nil)
	if c := chosen(t, m, of("lobby", 1)); c.Node != "small" {
		t.Errorf("chose %s", c.Node)
	}
}
