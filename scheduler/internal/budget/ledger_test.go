package budget

import (
	"fmt"
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

const node = fleet.NodeID("n1")

// world returns a ledger with one node of 10,000 MiB and 10 cores and without a limit of
// instances.
func world() *Ledger {
	l := NewLedger()
	l.SetNode(node, Node{Usable: true, Capacity: fleet.Resources{MemoryMiB: 10_000, CPU: 1000}})
	return l
}

func mem(mib int) fleet.Resources { return fleet.Resources{MemoryMiB: mib} }

func alice(limit, reserved fleet.Budget) *cluster.Quota {
	return &cluster.Quota{Name: "alice", Selector: map[string]string{"tenant": "alice"}, Limit: limit, Reserved: reserved}
}

var ofAlice = Terms{Labels: map[string]string{"tenant": "alice", "tier": "gold"}}

func TestWhatMayBePlaced(t *testing.T) {
	tests := []struct {
		rule  string
		setup func(*Ledger)
		ask   fleet.Resources // of group g
		touch []string
		no    string // the message of the refusal
		why   fleet.Reason
	}{
		{"without quotas and reservations everything", func(*Ledger) {}, mem(1), nil, "", ""},
		{"a group's own quota bounds it and needs no record", func(l *Ledger) {
			l.SetGroup("g", Terms{Quota: fleet.Budget{Instances: 2}})
			l.Charge(node, "g", mem(1))
		}, mem(1), nil, "", ""},
		{"and says so when it is spent", func(l *Ledger) {
			l.SetGroup("g", Terms{Quota: fleet.Budget{Instances: 1}})
			l.Charge(node, "g", mem(1))
		}, mem(1), nil, "the quota of group g: 1 of 1 instances are held: raise it, or wait until enough has ended", fleet.ReasonQuotaSpent},
		{"what asks for more than all of it is not told to wait", func(l *Ledger) {
			l.SetGroup("g", Terms{Quota: fleet.Budget{MemoryMiB: 1}})
		}, mem(2), nil, "the quota of group g: 0 of 1 MiB are held, 2 more are requested: no wait helps: raise it, or request less", fleet.ReasonQuotaSpent},
		{"a tenant's quota counts all its groups and is touched", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{Instances: 3}, fleet.Budget{}))
			l.SetGroup("g", ofAlice)
			l.SetGroup("other", ofAlice)
			l.Charge(node, "other", mem(1))
			l.Charge(node, "other", mem(1))
		}, mem(1), []string{"alice"}, "", ""},
		{"and says how much is held", func(l *Ledger) {
			l.SetGroup("g", ofAlice)
			l.SetGroup("other", ofAlice)
			for range 12 {
				l.Charge(node, "other", mem(1))
			}
			l.SetQuota(alice(fleet.Budget{Instances: 12}, fleet.Budget{}))
		}, mem(1), nil, "quota alice: 12 of 12 instances are held: raise it, or wait until enough has ended", fleet.ReasonQuotaSpent},
		{"what would exceed it is named with what is asked for", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{MemoryMiB: 12288, CPU: 250}, fleet.Budget{}))
			l.SetGroup("g", ofAlice)
			l.Charge(node, "g", fleet.Resources{MemoryMiB: 11264, CPU: 260})
		}, fleet.Resources{MemoryMiB: 2048, CPU: 5}, nil, "quota alice: 11264 of 12288 MiB are held, 2048 more are requested; 2.60 of 2.50 cores are held: raise it, or wait until enough has ended", fleet.ReasonQuotaSpent},
		{"a quota below what is held refuses whatever is asked for", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{MemoryMiB: 100}, fleet.Budget{}))
			l.SetGroup("g", ofAlice)
			l.Charge(node, "g", mem(200))
		}, mem(0), nil, "quota alice: 200 of 100 MiB are held: raise it, or wait until enough has ended", fleet.ReasonQuotaSpent},
		{"groups without its labels are not counted", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{Instances: 1}, fleet.Budget{}))
			l.SetGroup("other", ofAlice)
			l.Charge(node, "other", mem(1))
		}, mem(1), nil, "", ""},
		{"a group that is relabelled takes what it holds along", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{Instances: 1}, fleet.Budget{}))
			l.SetGroup("other", ofAlice)
			l.Charge(node, "other", mem(1))
			l.SetGroup("other", Terms{})
			l.SetGroup("g", ofAlice)
		}, mem(1), []string{"alice"}, "", ""},
		{"a quota that is gone bounds nothing", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{Instances: 1}, fleet.Budget{Instances: 1, MemoryMiB: 9000}))
			l.SetGroup("g", ofAlice)
			l.Charge(node, "g", mem(1))
			l.RemoveQuota("alice")
		}, mem(2000), nil, "", ""},
		{"what is reserved for others is left, and the record of all reservations touched", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 9000}})
		}, mem(1000), []string{".reserved"}, "", ""},
		{"and not a MiB less", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 9000}})
		}, mem(1001), nil, "9000 MiB are reserved for group lobby; 10000 MiB are free, 1001 are requested: lower what is reserved, or add nodes", fleet.ReasonReserved},
		{"what is filled of a reservation is not kept twice", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 5000}})
			l.Charge(node, "lobby", mem(4000))
		}, mem(5000), []string{".reserved"}, "", ""},
		{"a reservation that is filled is not touched", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 5000}})
			l.Charge(node, "lobby", mem(6000))
		}, mem(4000), nil, "", ""},
		{"reservations add up", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 5000}})
			l.SetQuota(alice(fleet.Budget{}, fleet.Budget{MemoryMiB: 3000}))
		}, mem(2001), nil, "5000 MiB are reserved for group lobby, 3000 MiB are reserved for quota alice; 10000 MiB are free, 2001 are requested: lower what is reserved, or add nodes", fleet.ReasonReserved},
		{"who reserves is named as far as there is room", func(l *Ledger) {
			for _, name := range []fleet.GroupName{"a", "b", "c", "d", "e"} {
				l.SetGroup(name, Terms{Reserved: fleet.Budget{MemoryMiB: 2000}})
			}
		}, mem(1), nil, "2000 MiB are reserved for group a, 2000 MiB are reserved for group b, 2000 MiB are reserved for group c, 4000 MiB for 2 others; 10000 MiB are free, 1 are requested: lower what is reserved, or add nodes", fleet.ReasonReserved},
		{"a tenant draws from its own reservation, touching it", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{}, fleet.Budget{MemoryMiB: 8000}))
			l.SetGroup("g", ofAlice)
		}, mem(8000), []string{"alice"}, "", ""},
		{"beyond it a tenant leaves others theirs", func(l *Ledger) {
			l.SetQuota(alice(fleet.Budget{}, fleet.Budget{MemoryMiB: 100}))
			l.SetGroup("g", ofAlice)
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 9000}})
		}, mem(1001), nil, "9000 MiB are reserved for group lobby; 10000 MiB are free, 1001 are requested: lower what is reserved, or add nodes", fleet.ReasonReserved},
		{"where more is reserved than there is, the first comes first", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 9000}})
			l.SetGroup("g", Terms{Reserved: fleet.Budget{MemoryMiB: 9000}})
		}, mem(9000), nil, "", ""},
		{"what takes nothing of a part is not judged by it", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{CPU: 5000}})
		}, mem(100), nil, "", ""},
		{"instances are not kept while some node has no bound", func(l *Ledger) {
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{Instances: 5000}})
		}, mem(1), nil, "", ""},
		{"but are once all have one", func(l *Ledger) {
			l.SetNode(node, Node{Usable: true, Capacity: mem(10_000), MaxInstances: 3})
			l.Charge(node, "x", mem(1))
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{Instances: 2}})
		}, mem(1), nil, "2 instances are reserved for group lobby; 2 instances are free, 1 are requested: lower what is reserved, or add nodes", fleet.ReasonReserved},
		{"what is free on nodes that cannot be used does not count", func(l *Ledger) {
			l.SetNode("n2", Node{Capacity: mem(10_000)})
			l.SetGroup("lobby", Terms{Reserved: fleet.Budget{MemoryMiB: 9000}})
		}, mem(1001), nil, "9000 MiB are reserved for group lobby; 10000 MiB are free, 1001 are requested: lower what is reserved, or add nodes", fleet.ReasonReserved},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			l := world()
			tt.setup(l)
			touch, no := l.Ask("g", tt.ask)
			switch {
			case no == nil && tt.no != "":
				t.Fatalf("allowed, want: %s", tt.no)
			case no != nil && (no.Message != tt.no || no.Reason != tt.why):
				t.Fatalf("%s: %s\nwant %s: %s", no.Reason, no.Message, tt.why, tt.no)
			}
			if !slices.Equal(touch, tt.touch) {
				t.Errorf("touches %q, want %q", touch, tt.touch)
			}
		})
	}
}

func TestTheRecordOfAllReservationsIsNoQuotas(t *testing.T) {
	q := cluster.Quota{Name: fleet.ReservedAlloc, Selector: map[string]string{"a": "b"}, Limit: fleet.Budget{Instances: 1}}
	if len(q.Validate()) == 0 {
		t.Errorf("a quota may be called %s", q.Name)
	}
}

func TestALedgerDoesNotGrowWithWhatComesAndGoes(t *testing.T) {
	l := NewLedger()
	for n := range 100 {
		node, group := fleet.NodeID(fmt.Sprint("n", n)), fleet.GroupName(fmt.Sprint("g", n))
		l.SetNode(node, Node{Usable: true, Capacity: fleet.Resources{MemoryMiB: 100}})
		l.SetGroup(group, Terms{Labels: map[string]string{"tenant": "a"}, Reserved: fleet.Budget{MemoryMiB: 5}})
		l.SetQuota(&cluster.Quota{Name: "a", Selector: map[string]string{"tenant": "a"}, Limit: fleet.Budget{Instances: 3}})
		l.Charge(node, group, fleet.Resources{MemoryMiB: 10})
		if n%2 == 0 { // holds may end before their group is removed, or after
			l.Release(node, group, fleet.Resources{MemoryMiB: 10})
			l.RemoveGroup(group)
			l.RemoveNode(node)
		} else {
			l.RemoveNode(node)
			l.RemoveGroup(group)
			l.Release(node, group, fleet.Resources{MemoryMiB: 10})
		}
		l.RemoveQuota("a")
	}
	if n := len(l.groups) + len(l.nodes); n > 0 {
		t.Errorf("%d groups and nodes are still known", n)
	}
}
