package check_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/check"
	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestWhatRecordsMayNotSay(t *testing.T) {
	second := fleet.InstanceID("bbbbbb")
	other := func(i *fleet.Intent) { i.Name = "lobby-2" }
	for name, c := range map[string]struct {
		history func(*past) *past
		want    string
	}{
		"a life": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Online)).txn(order(first, fleet.ReasonStopRequested)).txn(status(first, fleet.Stopped))
		}, ""},
		"a placement by the owner before": {func(p *past) *past {
			return p.txn(write{shard(), nil}).txn(write{shard(), cluster.Shard{}}).txn(placement(first))
		}, "former owner: lobby-1 was placed under epoch 1"},
		"a placement by the new owner": {func(p *past) *past {
			return p.txn(write{shard(), nil}).txn(write{shard(), cluster.Shard{}}).
				txn(placement(first, func(p *fleet.Placement) { p.Epoch = 5 }))
		}, ""},
		"a placement while nobody owns the shard": {func(p *past) *past {
			return p.txn(write{shard(), nil}).txn(placement(first))
		}, "former owner"},
		"a status of the session before": {func(p *past) *past {
			return p.txn(placement(first)).txn(write{keys.NodeSession("node-1"), nil}).txn(session("node-1")).txn(status(first, fleet.Online))
		}, "former owner: status ONLINE"},
		"a status without a session": {func(p *past) *past {
			return p.txn(placement(first)).txn(write{keys.NodeSession("node-1"), nil}).txn(status(first, fleet.Online))
		}, "former owner: status ONLINE"},
		"a node declared lost": {func(p *past) *past {
			return p.txn(placement(first)).txn(write{keys.NodeSession("node-1"), nil}).txn(status(first, fleet.Offline))
		}, ""},
		"a node declared lost while it lives": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Offline))
		}, "declared lost"},
		"as much as fits": {func(p *past) *past {
			return p.txn(intent(second, other)).txn(placement(first), placement(second, ported(6)))
		}, ""},
		"more than fits": {func(p *past) *past {
			return p.txn(intent(second, other)).txn(placement(first)).
				txn(placement(second, ported(6), func(p *fleet.Placement) { p.Resources.MemoryMiB = 601 }))
		}, "over capacity: 1001 MiB"},
		"room that was released": {func(p *past) *past {
			return p.txn(intent(second, other)).txn(placement(first)).txn(status(first, fleet.Crashed)).
				txn(placement(second, func(p *fleet.Placement) { p.Resources.MemoryMiB = 1000 }))
		}, ""},
		"room of a lost node's instance": {func(p *past) *past {
			return p.txn(intent(second, other)).txn(placement(first)).txn(write{keys.NodeSession("node-1"), nil}).
				txn(status(first, fleet.Offline)).txn(placement(second, ported(6), func(p *fleet.Placement) { p.Resources.MemoryMiB = 1000 }))
		}, "over capacity"},
		"one port for two": {func(p *past) *past {
			return p.txn(intent(second, other)).txn(placement(first)).txn(placement(second))
		}, "port twice"},
		"an additional port that is taken": {func(p *past) *past {
			return p.txn(intent(second, other)).txn(placement(first)).
				txn(placement(second, ported(6), func(p *fleet.Placement) { p.Ports = map[string]int{"query": 5} }))
		}, "port twice"},
		"a generation on two nodes": {func(p *past) *past {
			return p.txn(placement(first)).txn(placement(first, func(p *fleet.Placement) { p.Node = "node-2" }))
		}, "placed twice"},
		"the next generation on another node": {func(p *past) *past {
			return p.txn(placement(first)).txn(placement(first, func(p *fleet.Placement) { p.Node, p.Generation = "node-2", 2 }))
		}, ""},
		"a drain of an empty node": {func(p *past) *past {
			return p.txn(drained(9)).txn(completed(true))
		}, ""},
		"a drain that completes too early": {func(p *past) *past {
			return p.txn(placement(first)).txn(drained(9)).txn(completed(true))
		}, "lobby-1 is on node-1, whose drain completed"},
		"a drained node that is not cordoned": {func(p *past) *past {
			return p.txn(drained(9)).txn(completed(false))
		}, "is not cordoned"},
		"a placement on a drained node": {func(p *past) *past {
			return p.txn(drained(9)).txn(completed(true)).txn(placement(first))
		}, "which is drained"},
		"a copy of one that ended": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Stopped)).txn(moves(move.Copying)).txn(moves(move.Starting), intent(first, moved))
		}, ""},
		"a copy that is not used": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Stopped)).txn(moves(move.Copying)).txn(moves(move.Done))
		}, "the copy of lobby-1 on node-2 is not its data"},
		"a copy of one that runs": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Online)).txn(moves(move.Copying)).txn(moves(move.Starting), intent(first, moved))
		}, "was copied from node-1 while it was ONLINE there"},
		"a start where the copy is": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Stopped)).txn(intent(first, moved)).txn(placement(first, again("node-2")))
		}, ""},
		"a start where the data was": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Stopped)).txn(intent(first, moved)).txn(placement(first, again("node-1")))
		}, "lobby-1 was placed on node-1, but its data was moved to node-2"},
		"a start where the data was, after the copy was used": {func(p *past) *past {
			return p.txn(placement(first)).txn(intent(first, moved)).txn(placement(first, again("node-2"))).txn(placement(first, again("node-1"), func(p *fleet.Placement) { p.Generation = 3 }))
		}, ""},
		"one name for two": {func(p *past) *past { return p.txn(intent(second)) }, "name twice"},
		"the name of one that ended": {func(p *past) *past {
			return p.txn(placement(first)).txn(status(first, fleet.Crashed)).txn(intent(second))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := check.Records(c.history(begun(t)).events)
			if err != nil {
				t.Fatal(err)
			}
			one(t, got, c.want)
		})
	}
}

func completed(cordoned bool) write {
	drain := &fleet.NodeDrain{ID: "d", CompletedAt: time.Unix(1, 0)}
	return write{keys.NodeDesired("node-1"), fleet.NodeDesired{Node: "node-1", Cordoned: cordoned, Drain: drain}}
}

// moved says that the data of the first generation was copied to node-2.
func moved(i *fleet.Intent) {
	i.MovesTo, i.Generation = &fleet.DataCopy{Node: "node-2", Generation: 1}, 2
}

// again is the second generation on a node.
func again(node fleet.NodeID) func(*fleet.Placement) {
	return func(p *fleet.Placement) { p.Node, p.Generation = node, 2 }
}

func ported(n int) func(*fleet.Placement) { return func(p *fleet.Placement) { p.Port = n } }

func TestWhatMayNotEnd(t *testing.T) {
	// run is the first instance's run with PID 7. Changes seen at revision n happened by
	// time 10 n.
	run := func(alive record.Time, edit ...func(*record.Run)) record.Run {
		return lived(45, alive, append(edit, func(r *record.Run) { r.PID = 7 })...)
	}
	online := func(p *past) *past { return p.txn(placement(first)).txn(status(first, fleet.Online)) }
	expiring := func(p *past) *past {
		return online(p).txn(status(first, fleet.Stopped, func(s *fleet.Status) { s.Reason = fleet.ReasonSessionExpiring }))
	}
	for name, c := range map[string]struct {
		history        func(*past) *past
		run            record.Run
		living, killed bool
		shrunk         bool
		exclusive      bool
		unhurt         bool // no fault had occurred
		want           string
	}{
		"one that lives":                  {history: online, run: run(90), living: true},
		"one that ended for itself":       {history: online, run: run(55), want: "unrelated exit"},
		"one the plan killed":             {history: online, run: run(55), killed: true},
		"one that crashes by plan":        {history: online, run: run(55, noted(record.Failing))},
		"one that was asked to by nobody": {history: online, run: run(55, noted(record.Asked)), want: "unrelated exit"},
		"one that was ordered to": {
			history: func(p *past) *past { return online(p).txn(order(first, fleet.ReasonStopRequested)) },
			run:     run(65, noted(record.Asked)),
		},
		"one that was ordered to for no good reason": {
			history: func(p *past) *past { return online(p).txn(order(first, fleet.ReasonDeadlinePassed)) },
			run:     run(65), want: "unrelated order",
		},
		"one too many where none can be": {
			history: func(p *past) *past { return online(p).txn(order(first, fleet.ReasonScaledDown)) },
			run:     run(65), want: "unrelated order",
		},
		"one too many after a scale": {
			history: func(p *past) *past { return online(p).txn(order(first, fleet.ReasonScaledDown)) },
			run:     run(65), shrunk: true,
		},
		"one of two of which one is back": {
			history: func(p *past) *past {
				return online(p).txn(status(first, fleet.Offline)).txn(order(first, fleet.ReasonNodeReturned))
			},
			run: run(65),
		},
		"one of two though no node was lost": {
			history: func(p *past) *past { return online(p).txn(order(first, fleet.ReasonNodeReturned)) },
			run:     run(65), want: "unrelated order",
		},
		"one too many after a lost node came back": {
			history: func(p *past) *past {
				return online(p).txn(status(first, fleet.Offline)).txn(order(first, fleet.ReasonScaledDown))
			},
			run: run(65),
		},
		"one that made way for the next generation": {
			history: func(p *past) *past {
				return online(p).txn(placement(first, func(p *fleet.Placement) { p.Generation = 2 }))
			},
			run: run(65),
		},
		"one that could not be started": {
			history: func(p *past) *past {
				return p.txn(placement(first)).txn(status(first, fleet.Failed, func(s *fleet.Status) { s.Reason = fleet.ReasonPortTaken }))
			},
			run: run(90), living: true, want: "FAILED because PortTaken",
		},
		"one that ended with its node's session": {
			history: expiring, run: run(55), exclusive: true,
		},
		"one that ended with its node's session though nothing had failed": {
			history: expiring, run: run(55), exclusive: true, unhurt: true, want: "nothing that the session",
		},
		"one that ended with its node's session though nothing replaces it": {
			history: expiring, run: run(55), want: "not exclusive",
		},
		"one that was lost before it was started": {
			history: func(p *past) *past {
				return p.txn(placement(first)).txn(status(first, fleet.Offline, func(s *fleet.Status) { s.PID = 0 })).
					txn(status(first, fleet.Failed, func(s *fleet.Status) { s.Reason = fleet.ReasonNodeLost }))
			},
			run: run(90), living: true,
		},
		"one that was reported dead and lives": {
			history: func(p *past) *past { return online(p).txn(status(first, fleet.Crashed)) },
			run:     run(90), living: true, want: "lived on",
		},
		"one that died before it was reported": {
			history: func(p *past) *past { return online(p).txn(status(first, fleet.Crashed)) },
			run:     run(59), killed: true,
		},
		"one that its agent started again after the report of a crash": {
			history: func(p *past) *past { return online(p).txn(status(first, fleet.Crashed)) },
			run:     lived(62, 65, func(r *record.Run) { r.PID = 8 }),
		},
		"one that was running before the report of a crash": {
			history: func(p *past) *past { return online(p).txn(status(first, fleet.Crashed)) },
			run:     lived(52, 65, func(r *record.Run) { r.PID = 8 }), want: "unrelated exit",
		},
		"one whose pid nobody had learned, after an order": {
			history: func(p *past) *past { return p.txn(placement(first)).txn(order(first, fleet.ReasonGroupDeleted)) },
			run:     run(59),
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := check.Exits{
				Runs: []record.Run{c.run}, Events: c.history(begun(t)).events,
				Living: func(int) bool { return c.living }, Killed: func(int) bool { return c.killed },
				MayShrink: func(fleet.GroupName) bool { return c.shrunk }, Exclusive: func(fleet.GroupName) bool { return c.exclusive },
				MayFail:   func(fleet.Reason) bool { return false },
				MayExpire: func(fleet.NodeID, record.Time) bool { return !c.unhurt },
			}
			got, err := x.Check()
			if err != nil {
				t.Fatal(err)
			}
			one(t, got, c.want)
		})
	}
}

func TestWhatIsNotSettled(t *testing.T) {
	online := func(p *past) *past { return p.txn(placement(first)).txn(status(first, fleet.Online)) }
	process := lived(45, 90, func(r *record.Run) { r.PID = 7 })
	stranger := lived(45, 90, func(r *record.Run) { r.PID, r.Instance = 8, "bbbbbb" })
	for name, c := range map[string]struct {
		history func(*past) *past
		live    []record.Run
		want    string
	}{
		"all as declared":        {history: online, live: []record.Run{process}},
		"one not placed yet":     {history: func(p *past) *past { return p }, want: "PENDING"},
		"one without a process":  {history: online, want: "lost: lobby-1"},
		"a process nobody knows": {history: online, live: []record.Run{process, stranger}, want: "orphan"},
		"another process than the record says": {
			history: func(p *past) *past {
				return online(p).txn(status(first, fleet.Starting)).txn(status(first, fleet.Stopped))
			},
			live: []record.Run{process}, want: "orphan",
		},
		"one that shall stop": {
			history: func(p *past) *past {
				return online(p).txn(intent(first, func(i *fleet.Intent) { i.Desired = fleet.DesiredStopped }))
			},
			live: []record.Run{process}, want: "shall stop",
		},
		"a name that its group does not declare": {
			history: func(p *past) *past {
				g := fleet.Group{Name: group}
				g.Spec.Static.Enabled, g.Spec.Static.InstanceNames = true, []string{"hub"}
				return online(p).txn(write{keys.Group(group), g}).txn(intent(first, func(i *fleet.Intent) { i.Name = "other" }))
			},
			live: []record.Run{process}, want: "declares other names",
		},
		"two with one name": {
			history: func(p *past) *past {
				return online(p).txn(intent("bbbbbb")).txn(placement("bbbbbb")).txn(status("bbbbbb", fleet.Online, func(s *fleet.Status) { s.PID = 8 }))
			},
			live: []record.Run{process, stranger}, want: "are called lobby-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := history.Last(c.history(begun(t)).events)
			if err != nil {
				t.Fatal(err)
			}
			wanted := map[fleet.GroupName]int{group: len(onlineOf(s))}
			one(t, check.Settled(s, wanted, c.live), c.want)
		})
	}
	s, err := history.Last(online(begun(t)).events)
	if err != nil {
		t.Fatal(err)
	}
	one(t, check.Settled(s, map[fleet.GroupName]int{group: 2}, []record.Run{process}), "2 are declared")
}

// onlineOf returns the instances that count towards the number.
func onlineOf(s *history.State) []fleet.InstanceID {
	var out []fleet.InstanceID
	for id, i := range s.Instances() {
		if i.State() == fleet.Online {
			out = append(out, id)
		}
	}
	return out
}
