package view_test

import (
	"maps"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestReportIncludesItsParts(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	const node, one, two = fleet.NodeID("n1"), fleet.InstanceID("aaaaaa"), fleet.InstanceID("bbbbbb")
	if one.Part() == two.Part() {
		t.Fatal("both are in the same part")
	}
	at := time.UnixMilli(1_800_000_000_000).UTC()
	part := func(id fleet.InstanceID, players int) reports.ReportPart {
		return reports.ReportPart{At: at, Instances: map[fleet.InstanceID]reports.InstanceReport{id: {Players: players, PlayersKnown: true}}}
	}
	key := func(id fleet.InstanceID) keys.Key[reports.ReportPart] { return keys.ReportPart(node, id.Part()) }
	expect := func(v *view.View, rev int64, want map[fleet.InstanceID]int) *view.Snapshot {
		t.Helper()
		s, err := v.WaitRev(bounded(t), rev)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := s.Reports.Get(node)
		got := map[fleet.InstanceID]int{}
		if r != nil {
			for id, i := range r.Instances {
				got[id] = i.Players
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("at %d the report has %v, want %v", rev, got, want)
		}
		return s
	}
	older := commit(t, c, store.Create(keys.Report(node), reports.Report{Node: node, Instances: map[fleet.InstanceID]reports.InstanceReport{one: {Players: 9}}}))
	expect(v, older, map[fleet.InstanceID]int{one: 9})
	first, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Replace(keys.Report(node), reports.Report{Node: node, Parted: true}, older),
		store.Create(key(one), part(one, 1)), store.Create(key(two), part(two, 2)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	before := expect(v, first, map[fleet.InstanceID]int{one: 1, two: 2})
	rev := commit(t, c, store.Replace(key(one), part(one, 3), first))
	expect(v, rev, map[fleet.InstanceID]int{one: 3, two: 2})
	judged := func(id fleet.InstanceID) error {
		_, err := c.Commit(t.Context(), store.Txn{Guards: []store.Guard{before.FiguresUnchanged(node, id)}})
		return err
	}
	if err := judged(two); err != nil {
		t.Errorf("nobody joined %s: %v", two, err)
	}
	if err := judged(one); !errs.Is(err, errs.Conflict) {
		t.Errorf("somebody joined %s: %v", one, err)
	}
	last := commit(t, c, store.Remove(key(two), first))
	expect(v, last, map[fleet.InstanceID]int{one: 3})
	fresh, _ := start(t, c)
	expect(fresh, last, map[fleet.InstanceID]int{one: 3})
}
