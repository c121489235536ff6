package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// drawRecord draws a record of one of a few instances or nodes.
func drawRecord(t *rapid.T) (key string, record any) {
	id := rapid.SampledFrom([]fleet.InstanceID{"aaaaaa", "bbbbbb", "cccccc"}).Draw(t, "instance")
	node := rapid.SampledFrom([]fleet.NodeID{"n1", "n2"}).Draw(t, "node")
	generation := rapid.Int64Range(1, 2).Draw(t, "generation")
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return keys.Intent(id).String(), fleet.Intent{ID: id, Group: "lobby", Name: "lobby-1", Generation: generation}
	case 1:
		return keys.Placement(node, id).String(), fleet.Placement{Instance: id, Node: node, Generation: generation}
	case 2:
		return keys.Order(node, id).String(), fleet.Order{Instance: id, Node: node, Generation: generation}
	case 3:
		state := rapid.SampledFrom([]fleet.State{fleet.Online, fleet.Stopped}).Draw(t, "state")
		return keys.Status(id).String(), fleet.Status{Instance: id, Node: node, Generation: generation, State: state}
	case 4:
		return keys.Pending(id).String(), fleet.Pending{}
	case 5:
		return keys.Report(node).String(), reports.Report{Node: node, Parted: rapid.IntRange(0, 3).Draw(t, "by an old agent") > 0}
	}
	return keys.ReportPart(node, id.Part()).String(), reports.ReportPart{Instances: map[fleet.InstanceID]reports.InstanceReport{id: {Players: int(generation)}}}
}

// onTheOtherNode returns the key of an instance's placement or order on the other node.
func onTheOtherNode(key string) string {
	return strings.NewReplacer("/n1/", "/n2/", "/n2/", "/n1/").Replace(key)
}

// holds follows which nodes instances hold, as a scheduler does: from the changes of intents, placements and
// statuses alone.
type holds map[fleet.InstanceID]string

func held(i *fleet.Instance) string {
	if i == nil {
		return ""
	}
	if node, generation := i.Held(); node != "" {
		return fmt.Sprint(node, " ", generation)
	}
	return ""
}

func (h holds) follow(t *rapid.T, b Batch) {
	for _, c := range b.Changes {
		switch c.Kind {
		case KindIntent, KindPlacement, KindStatus:
			id := fleet.InstanceID(c.Key[len(c.Key)-1])
			if before := held(c.JoinedBefore); h[id] != before {
				t.Fatalf("%s %v: it held %q, and the change is from %q", c.Kind, c.Key, h[id], before)
			}
			if h[id] = held(c.Joined); h[id] == "" {
				delete(h, id)
			}
		}
	}
}

// shown is all that a snapshot says about instances and reports.
func shown(s *Snapshot) string {
	var out strings.Builder
	for _, all := range []Table[fleet.InstanceID, *fleet.Instance]{s.Instances, s.Orphans} {
		for id, i := range all.All() {
			b, _ := json.Marshal(i)
			fmt.Fprintln(&out, id, string(b))
		}
	}
	for node, r := range s.Reports.All() {
		b, _ := json.Marshal(r)
		fmt.Fprintln(&out, node, string(b), r.Instances) // fmt sorts the keys
	}
	for _, at := range []index{s.byGroup, s.byNode} {
		for k := range at.All() {
			fmt.Fprintf(&out, "%q ", k)
		}
	}
	return out.String()
}

// The same instance told about a player on two nodes. The later record counts, whatever the order of the keys.
func TestTheLaterPresenceCountsInAList(t *testing.T) {
	const id = players.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5")
	told := func(node fleet.NodeID, rev int64) store.KeyValue {
		b, err := json.Marshal(players.PresencePart{Players: []players.Presence{{Player: id, By: "aaaaaa", Said: rev, Since: time.UnixMicro(1), At: time.UnixMicro(1)}}})
		if err != nil {
			t.Fatal(err)
		}
		return store.KeyValue{Key: keys.Players(node, 0).String(), Value: b, CreateRev: rev, ModRev: rev}
	}
	for _, later := range []fleet.NodeID{"n1", "n9"} {
		v := New(nil, nil)
		b := &builder{view: v, keys: map[string]int64{}}
		list := []store.KeyValue{told("n1", 5), told("n9", 5)}
		for n := range list {
			if list[n].Key == keys.Players(later, 0).String() {
				list[n] = told(later, 6)
			}
		}
		b.Reset(list, 6)
		if p, ok := v.Snapshot().byPlayer.Get(pairOf(id, "aaaaaa")); !ok || p.Said != 6 {
			t.Errorf("the record of %s is later, and %+v counts", later, p)
		}
	}
}

// A list, the first one or a later one, leads to the same snapshot as its changes one by one, and its batch tells
// a listener the same.
func TestAListIsLikeItsChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		listing, following := New(nil, nil), New(nil, nil)
		lister := &builder{view: listing, keys: map[string]int64{}}
		follower := &builder{view: following, keys: map[string]int64{}}
		told := holds{}
		listing.Subscribe(func(b Batch) { told.follow(t, b) })

		state, rev := map[string]store.KeyValue{}, int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "lists") {
			for range rapid.IntRange(1, 12).Draw(t, "changes") {
				key, record := drawRecord(t)
				rev++
				value, err := json.Marshal(record)
				if err != nil {
					t.Fatal(err)
				}
				kv := store.KeyValue{Key: key, Value: value, CreateRev: rev, ModRev: rev}
				removed := rapid.IntRange(0, 2).Draw(t, "removed") == 0
				changes := []store.Change{{KeyValue: kv, Removed: removed}}
				if state[key] = kv; removed {
					delete(state, key)
					// The older record on the other node would count again in a list only. It is removed first.
					if other := onTheOtherNode(key); state[other].Key != "" {
						delete(state, other)
						changes = slices.Insert(changes, 0, store.Change{KeyValue: store.KeyValue{Key: other, ModRev: rev}, Removed: true})
					}
				}
				follower.Apply(changes, rev)
			}
			var list []store.KeyValue
			for _, key := range slices.Sorted(maps.Keys(state)) {
				list = append(list, state[key])
			}
			lister.Begin(len(list))
			if rapid.Bool().Draw(t, "the list fails on the way") {
				lister.Page(slices.Clone(list[:len(list)/2]))
				lister.Begin(len(list))
			}
			for page := range slices.Chunk(slices.Clone(list), 3) {
				lister.Page(page)
			}
			lister.Reset(nil, rev)
			if got, want := shown(listing.Snapshot()), shown(following.Snapshot()); got != want {
				t.Fatalf("the list gives\n%s\nand its changes give\n%s", got, want)
			}
		}
		for id, i := range listing.Snapshot().Instances.All() {
			if told[id] != held(i) {
				t.Errorf("a listener knows that %s holds %q, it holds %q", id, told[id], held(i))
			}
		}
	})
}
