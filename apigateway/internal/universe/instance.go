package universe

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The times after which the list leaves finished instances out.
const (
	hideStopped = 10 * time.Second
	hideOffline = 15 * time.Second
)

// The states of this dialect.
const (
	creating = "CREATING"
	online   = "ONLINE"
	offline  = "OFFLINE"
	stopped  = "STOPPED"
)

// Instance is an instance as this dialect shows it: its own fields first, then
// what its clients were missing. Every field is always there.
type Instance struct {
	ID                fleet.InstanceID  `json:"id"`
	ConfigurationName fleet.GroupName   `json:"configurationName"`
	WrapperNodeID     fleet.NodeID      `json:"wrapperNodeId"` // "" while no node is decided
	HostAddress       string            `json:"hostAddress"`
	AllocatedPort     int               `json:"allocatedPort"` // 0 while none is decided
	State             string            `json:"state"`
	LastHeartbeat     int64             `json:"lastHeartbeat"` // milliseconds since 1970
	ProcessPID        *int              `json:"processPid"`    // null while no process runs
	AllocatedRAMMB    int               `json:"allocatedRamMB"`
	AllocatedCPU      int               `json:"allocatedCpu"`
	Runtime           fleet.RuntimeName `json:"runtime"`

	Name       string       `json:"name"`
	Reason     fleet.Reason `json:"reason"`
	Message    string       `json:"message"`
	ExitCode   *int         `json:"exitCode"` // null while it runs, or when nobody saw it
	Players    *int         `json:"players"`  // null until the instance said
	MaxPlayers *int         `json:"maxPlayers"`
	TPS        *float64     `json:"tps"`
	UptimeMs   *int64       `json:"uptimeMs"` // null before it was started
	UsedRAMMB  *int64       `json:"usedRamMB"`
	UsedCPU    *float64     `json:"usedCpu"`
	UsedDiskMB *int64       `json:"usedDiskMB"`
	Frozen     bool         `json:"frozen"`
}

// InstanceOf shows an instance as a snapshot has it.
func InstanceOf(s *view.Snapshot, i *fleet.Instance, now time.Time) Instance {
	reason, message := i.Why()
	plan := planOf(s, i)
	out := Instance{
		ID: i.Intent.ID, ConfigurationName: i.Intent.Group,
		HostAddress: hostOf(s, i, plan), State: stateOf(i.State()),
		LastHeartbeat:  lastSign(i).UnixMilli(),
		AllocatedRAMMB: plan.Resources.MemoryMiB, AllocatedCPU: plan.Resources.CPU, Runtime: plan.Runtime,
		Name: i.Intent.Name, Reason: reason, Message: spelling.Replace(message), UptimeMs: i.UptimeMillis(now),
		Frozen: i.Intent.Frozen,
	}
	if p := i.Shown(); p != nil {
		out.WrapperNodeID, out.AllocatedPort = p.Node, p.Port
	}
	if st := i.Status; st != nil {
		if st.PID != 0 && !i.Terminal() {
			out.ProcessPID = &st.PID
		}
		if st.Exit != nil && st.Exit.Known && i.Terminal() {
			out.ExitCode = &st.Exit.Code
		}
	}
	if report, ok := s.Reports.Get(i.Node()); ok && i.State() != fleet.Offline { // what a lost node reported last is not of now
		out.addReport(report.Instances[i.Intent.ID])
	}
	return out
}

// addReport adds what is known of how it fares.
func (out *Instance) addReport(r fleet.InstanceReport) {
	out.UsedRAMMB, out.UsedCPU, out.UsedDiskMB = r.Usage.UsedMemory(), r.Usage.UsedCPU(), r.Usage.UsedDisk()
	if r.PlayersKnown {
		out.Players = &r.Players
	}
	if r.MaxPlayers > 0 {
		out.MaxPlayers = &r.MaxPlayers
	}
	if r.TPS > 0 {
		out.TPS = &r.TPS
	}
	if !r.HeartbeatAt.IsZero() {
		out.LastHeartbeat = max(out.LastHeartbeat, r.HeartbeatAt.UnixMilli())
	}
}

// planOf is what the instance was made from; of a plan already collected, what its group says now.
func planOf(s *view.Snapshot, i *fleet.Instance) fleet.Plan {
	if stored, ok := s.Plans.Get(i.Intent.Plan); ok {
		return stored.Plan
	}
	var plan fleet.Plan
	if g, ok := s.Groups.Get(i.Intent.Group); ok {
		plan = fleet.Plan{Runtime: g.Spec.Runtime, HostAddress: g.Spec.HostAddress, Resources: g.Spec.Resources}
	}
	if i.Placement != nil {
		plan.Resources = i.Placement.Resources
	}
	return plan
}

// hostOf is the advertised address: as its agent resolved it, else its node's, else as declared.
func hostOf(s *view.Snapshot, i *fleet.Instance, plan fleet.Plan) string {
	if i.Status != nil && i.Status.HostAddress != "" {
		return i.Status.HostAddress
	}
	if plan.HostAddress == "" {
		if n, ok := s.Nodes.Get(i.Node()); ok {
			return n.Address
		}
	}
	return plan.HostAddress
}

// lastSign is when the state last changed; before the agent spoke, when it was asked for.
func lastSign(i *fleet.Instance) time.Time {
	if i.Status != nil && i.Status.ChangedAt.After(i.Intent.GenerationAt) {
		return i.Status.ChangedAt
	}
	if at := i.FinishedAt(); at.After(i.Intent.GenerationAt) {
		return at
	}
	return i.Intent.GenerationAt
}

func stateOf(s fleet.State) string {
	switch s {
	case fleet.Unplaced, fleet.Preparing, fleet.Starting:
		return creating
	case fleet.Online, fleet.Stopping:
		return online
	case fleet.Stopped:
		return stopped
	case fleet.Crashed, fleet.Failed, fleet.Offline:
		return offline
	}
	return offline
}

// Hidden reports whether the list leaves an instance out: it ended a while ago and is not frozen.
func Hidden(i *fleet.Instance, now time.Time) bool {
	if i.Intent.Frozen {
		return false
	}
	age := now.Sub(lastSign(i))
	switch stateOf(i.State()) {
	case stopped:
		return age > hideStopped
	case offline:
		return age > hideOffline
	}
	return false
}
