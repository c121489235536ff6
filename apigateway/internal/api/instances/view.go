package instances

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ReportOf returns the figures that an instance's agent reported last.
func ReportOf(s *view.Snapshot, i *fleet.Instance) reports.InstanceReport {
	if r, ok := s.Reports.Get(i.Node()); ok {
		return r.Instances[i.Intent.ID]
	}
	return reports.InstanceReport{}
}

// Instance is an instance in an answer.
type Instance struct {
	// ID is the name, UID the unique id.
	ID         string           `json:"id"`
	UID        fleet.InstanceID `json:"uid"`
	Group      fleet.GroupName  `json:"group"`
	Node       fleet.NodeID     `json:"node"` // "" until a node is selected
	State      string           `json:"state"`
	Port       int              `json:"port"` // 0 until a node is selected
	Ports      []instancePort   `json:"ports"`
	HostAddr   string           `json:"hostAddress"`
	Players    *int             `json:"playerCount"` // null while unknown
	MaxPlayers int              `json:"maxPlayers"`
	TPS        *float64         `json:"tps"`      // null until reported
	UptimeMs   *int64           `json:"uptimeMs"` // null before the start
	UsedMemory *int64           `json:"usedMemoryMb"`
	UsedCPU    *float64         `json:"usedCpu"`
	UsedDisk   *int64           `json:"usedDiskMb"`
	StartedAt  *time.Time       `json:"startedAt"`
	FinishedAt *time.Time       `json:"finishedAt"`
	CreatedAt  time.Time        `json:"createdAt"`
	Revision   int64            `json:"deploymentRevision"`
	// GroupRevision is the revision of the group that it was made from.
	GroupRevision int64              `json:"groupRevision"`
	Warm          bool               `json:"warm"`
	MemoryMb      int                `json:"memoryMb"`
	Reason        string             `json:"reason"`
	Message       string             `json:"message"`
	ExitCode      *int               `json:"exitCode"` // null while it runs, or if no agent saw it
	PID           *int               `json:"pid"`      // null without a process
	Heartbeat     *time.Time         `json:"lastHeartbeat"`
	Generation    int64              `json:"generation"`
	Restarts      int                `json:"restarts"`
	Desired       fleet.Desired      `json:"desired"`
	Frozen        bool               `json:"frozen"`
	Runtime       fleet.RuntimeName  `json:"runtime"`
	Origin        fleet.Origin       `json:"origin"`
	Replaces      fleet.InstanceID   `json:"replaces,omitempty"`
	ReplacedBy    fleet.InstanceID   `json:"replacedBy,omitempty"`
	Templates     []instanceTemplate `json:"templates"`
	Lost          []fleet.FilterLoss `json:"lost,omitempty"` // if pending: how many nodes each rule excludes
	// Move is its latest move to another node.
	Move *instanceMove `json:"move,omitempty"`
	// Attach is the command that attaches to its terminal on its node. Only the answer for a single
	// instance has it, while the agent answers.
	Attach string `json:"attach,omitempty"`
}

type instancePort struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

type instanceTemplate struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// reasonNodeLost is the reason for the loss of a node in this API.
const reasonNodeLost = "NODE_LOST"

// reasonSleeping is the reason of an instance that sleeps. Its state in this API is STOPPED.
const reasonSleeping = "SLEEPING"

// InstanceOf shows an instance of a snapshot.
func InstanceOf(s *view.Snapshot, i *fleet.Instance, now time.Time) Instance {
	reason, message := i.Why()
	out := Instance{
		ID: i.Intent.Name, UID: i.Intent.ID, Group: i.Intent.Group, State: events.StateOf(i),
		Ports: []instancePort{}, CreatedAt: i.Intent.CreatedAt, Revision: i.Intent.Deployment, GroupRevision: i.Intent.GroupRevision,
		Reason: string(reason), Message: message, Generation: i.Intent.Generation, Desired: i.Intent.Desired, Frozen: i.Intent.Frozen, Warm: i.Intent.Warm,
		Origin: i.Intent.Origin, Replaces: i.Intent.Replaces, ReplacedBy: i.Intent.ReplacedBy,
		Templates: []instanceTemplate{},
	}
	switch i.State() {
	case fleet.Offline:
		out.Reason = reasonNodeLost
	case fleet.Sleeping:
		out.Reason = reasonSleeping
	}
	out.Move = moveOf(s, i.Intent.ID)
	if p := i.Shown(); p != nil {
		out.Node, out.Port = p.Node, p.Port
		for _, name := range slices.Sorted(maps.Keys(p.Ports)) {
			out.Ports = append(out.Ports, instancePort{name, p.Ports[name]})
		}
		out.MemoryMb = p.Resources.MemoryMiB
	}
	if i.State() == fleet.Unplaced && i.Pending != nil && i.Pending.Generation == i.Intent.Generation {
		out.Lost = i.Pending.Lost
	}
	out.addPlan(s, i)
	out.addStatus(s, i, now)
	r := ReportOf(s, i)
	switch {
	case i.State() == fleet.Offline: // the last report of its node is out of date
		r = reports.InstanceReport{HeartbeatAt: r.HeartbeatAt}
	case !i.State().Running():
		out.Players = new(0)
	}
	out.addReport(r)
	return out
}

// addPlan adds what the instance was created from.
func (out *Instance) addPlan(s *view.Snapshot, i *fleet.Instance) {
	stored, ok := s.Plans.Get(i.Intent.Plan)
	if !ok {
		return
	}
	out.MemoryMb, out.MaxPlayers, out.Runtime = stored.Plan.Resources.MemoryMiB, stored.Plan.MaxPlayers, stored.Plan.Runtime
	for _, l := range stored.Plan.Layers {
		out.Templates = append(out.Templates, instanceTemplate{Name: l.Short(), Digest: l.Digest})
	}
}

// addStatus adds the status of the requested generation.
func (out *Instance) addStatus(s *view.Snapshot, i *fleet.Instance, now time.Time) {
	if n, ok := s.Nodes.Get(out.Node); ok {
		out.HostAddr = n.Address
	}
	st := i.Status
	if st == nil || st.Generation < i.Intent.Generation && st.State.Terminal() {
		return
	}
	out.HostAddr, out.Restarts = cmp.Or(st.HostAddress, out.HostAddr), st.Restarts
	if i.Terminal() {
		if at := i.FinishedAt(); !at.IsZero() {
			out.FinishedAt = &at
		}
		if st.Exit != nil && st.Exit.Known {
			out.ExitCode = &st.Exit.Code
		}
	} else if st.PID != 0 {
		out.PID = &st.PID
	}
	if !st.StartedAt.IsZero() {
		out.StartedAt = &st.StartedAt
		out.UptimeMs = i.UptimeMillis(now)
	}
}

// addReport adds what the instance reported and uses.
func (out *Instance) addReport(r reports.InstanceReport) {
	out.UsedMemory, out.UsedCPU, out.UsedDisk = r.Usage.UsedMemory(), r.Usage.UsedCPU(), r.Usage.UsedDisk()
	if r.PlayersKnown {
		out.Players = &r.Players
	}
	if r.MaxPlayers > 0 {
		out.MaxPlayers = r.MaxPlayers
	}
	if !r.HeartbeatAt.IsZero() {
		out.Heartbeat = &r.HeartbeatAt
	}
	if r.TPS > 0 {
		out.TPS = &r.TPS
	}
}

// addLive adds live figures.
func (out *Instance) addLive(l upstream.Live) {
	out.addReport(l.Report)
	out.Attach = l.Attach
	if l.PID != 0 {
		out.PID = &l.PID
	}
}

// instanceFilter selects instances. Empty fields select all.
type instanceFilter struct {
	group fleet.GroupName
	node  fleet.NodeID
	state string
	// all also selects superseded and ended instances.
	all bool
}

// listedFor is how long lists show an instance after its end, unless it is frozen.
const listedFor = time.Minute

// superseded reports whether an instance has ended and another has its name.
func superseded(s *view.Snapshot, i *fleet.Instance) bool {
	if !i.Terminal() {
		return false
	}
	named, ok := s.ByName(i.Intent.Name)
	return ok && named.Intent.ID != i.Intent.ID
}

// listing holds the instances that a filter selects, in order.
type listing struct {
	all []*fleet.Instance
	// ended are the indexes in all of the instances that leave the list some time after their end.
	ended []int
}

// at returns the instances that the list shows at a time. endedAt returns when an instance ended.
func (l listing) at(now time.Time, endedAt func(*fleet.Instance) time.Time) []*fleet.Instance {
	over := map[int]bool{}
	for _, n := range l.ended {
		if now.Sub(endedAt(l.all[n])) > listedFor {
			over[n] = true
		}
	}
	if len(over) == 0 {
		return l.all
	}
	out := make([]*fleet.Instance, 0, len(l.all)-len(over))
	for n, i := range l.all {
		if !over[n] {
			out = append(out, i)
		}
	}
	return out
}

// maxFilter bounds the values of a filter, in bytes. No name and no state is longer.
const maxFilter = 64

// matchesNothing reports whether a value is too long to match anything. Such a filter is never a cache key,
// because it may be as long as a request.
func (f instanceFilter) matchesNothing() bool {
	return max(len(f.group), len(f.node), len(f.state)) > maxFilter
}

// selects reports whether the filter selects an instance. It accepts the name of a state in this API
// and in package fleet.
func (f instanceFilter) selects(i *fleet.Instance) bool {
	s := i.State()
	return (f.group == "" || i.Intent.Group == f.group) && (f.node == "" || i.Node() == f.node && i.Shown() != nil) &&
		(f.state == "" || strings.EqualFold(f.state, events.StateOf(i)) || strings.EqualFold(f.state, string(s)))
}

// listingOf returns the instances that a filter selects, by group and ordinal, the newest of a name
// first.
func listingOf(s *view.Snapshot, f instanceFilter) (out listing) {
	take := func(i *fleet.Instance) {
		if f.selects(i) && (f.all || !superseded(s, i)) {
			out.all = append(out.all, i)
		}
	}
	switch {
	case f.group != "":
		for i := range s.GroupInstances(f.group) {
			take(i)
		}
	case f.node != "":
		for i := range s.NodeInstances(f.node) {
			if i.Intent.ID != "" {
				take(i)
			}
		}
	default:
		for _, i := range s.Instances.All() {
			take(i)
		}
	}
	slices.SortFunc(out.all, func(a, b *fleet.Instance) int {
		return cmp.Or(cmp.Compare(a.Intent.Group, b.Intent.Group), cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal),
			b.Intent.CreatedAt.Compare(a.Intent.CreatedAt), cmp.Compare(a.Intent.ID, b.Intent.ID))
	})
	for n, i := range out.all {
		if !f.all && i.Terminal() && !i.Intent.Frozen {
			out.ended = append(out.ended, n)
		}
	}
	return out
}
