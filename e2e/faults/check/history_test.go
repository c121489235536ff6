package check_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// past builds a history. Each step is one transaction at the next revision, starting with
// 1. The recorder sees revision n at time 10 n.
type past struct {
	t       *testing.T
	rev     int64
	events  []history.Event
	created map[string]int64
}

func newPast(t *testing.T) *past { return &past{t: t, created: map[string]int64{}} }

// write is one record of a transaction. A nil value deletes the key.
type write struct {
	key   fmt.Stringer
	value any
}

func (p *past) txn(writes ...write) *past {
	p.t.Helper()
	p.rev++
	for _, w := range writes {
		e := history.Event{Seen: record.Time(10 * p.rev)}
		e.Key, e.ModRev, e.Removed = w.key.String(), p.rev, w.value == nil
		if !e.Removed {
			b, err := json.Marshal(w.value)
			if err != nil {
				p.t.Fatal(err)
			}
			if p.created[e.Key] == 0 {
				p.created[e.Key] = p.rev
			}
			e.Value, e.CreateRev = b, p.created[e.Key]
		} else {
			delete(p.created, e.Key)
		}
		p.events = append(p.events, e)
	}
	return p
}

const (
	group = fleet.GroupName("lobby")
	first = fleet.InstanceID("aaaaaa")
)

func shard() keys.Key[cluster.Shard] { return keys.Shard("scheduler", fleet.ShardOf(group)) }

func intent(id fleet.InstanceID, edit ...func(*fleet.Intent)) write {
	i := fleet.Intent{ID: id, Name: "lobby-1", Group: group, Desired: fleet.DesiredRunning, Generation: 1}
	for _, e := range edit {
		e(&i)
	}
	return write{keys.Intent(id), i}
}

// placement places generation 1 on node-1 with 400 MiB and port 5, under epoch 1.
func placement(id fleet.InstanceID, edit ...func(*fleet.Placement)) write {
	p := fleet.Placement{Instance: id, Name: "lobby-1", Group: group, Node: "node-1", Generation: 1, Resources: fleet.Resources{MemoryMiB: 400}, Port: 5, Epoch: 1}
	for _, e := range edit {
		e(&p)
	}
	return write{keys.Placement(p.Node, id), p}
}

// status reports generation 1 on node-1 with PID 7, under epoch 2.
func status(id fleet.InstanceID, state fleet.State, edit ...func(*fleet.Status)) write {
	s := fleet.Status{Instance: id, Group: group, Node: "node-1", Generation: 1, State: state, PID: 7, Epoch: 2}
	if state.Terminal() {
		s.PID = 0
	}
	for _, e := range edit {
		e(&s)
	}
	return write{keys.Status(id), s}
}

func order(id fleet.InstanceID, reason fleet.Reason) write {
	return write{keys.Order("node-1", id), fleet.Order{Instance: id, Node: "node-1", Generation: 1, Action: fleet.OrderStop, Reason: reason}}
}

func session(node fleet.NodeID) write {
	return write{keys.NodeSession(node), fleet.NodeSession{Node: node}}
}

// begun returns a history in which a scheduler owns the shard (epoch 1), node-1 has a
// session (epoch 2) and 1000 MiB, and the first instance is wanted. Revision 4 is next.
func begun(t *testing.T) *past {
	return newPast(t).
		txn(write{shard(), cluster.Shard{}}).
		txn(session("node-1")).
		txn(write{keys.Node("node-1"), fleet.Node{ID: "node-1", Capacity: fleet.Resources{MemoryMiB: 1000}}}, intent(first))
}
