package place_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func TestWhatWouldFitWithoutSomeFitsOnceTheyAreGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, m := drawModel(t)
		held := map[fleet.NodeID][]place.Hold{}
		for n := range rapid.IntRange(0, 20).Draw(t, "held") {
			if c, unfit := m.Place(drawRequest(t, n)); unfit == nil {
				held[c.Node] = append(held[c.Node], c.Hold)
			}
		}
		on := rapid.SampledFrom(nodes).Draw(t, "node").ID
		without := held[on][:rapid.IntRange(0, len(held[on])).Draw(t, "without")]
		r := drawRequest(t, 100)
		r.Pinned = on
		would, lacking := m.FitsWithout(r, on, without), m.Lacking(r, on, without)
		if m.FitsWithout(r, on, without) != would {
			t.Fatal("asking has changed something")
		}
		for _, h := range without {
			m.Release(h)
		}
		_, unfit := m.Place(r)
		if would != (unfit == nil) {
			t.Fatalf("it would fit: %v, but then: %+v", would, unfit)
		}
		if would && lacking != (fleet.Resources{}) {
			t.Fatalf("it fits, and %+v are lacking", lacking)
		}
	})
}
