package universe

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The list omits finished instances after these times.
const (
	hideStopped = 10 * time.Second
	hideOffline = 15 * time.Second
)

// The dialect's instance states.
const (
	creating = "CREATING"
	online   = "ONLINE"
	offline  = "OFFLINE"
	stopped  = "STOPPED"
)

// Instance is an instance in this dialect: the dialect's original fields, then the fields added by
// Orrery. Every field is always present.
type Instance struct {
	ID                fleet.InstanceID  `json:"id"`
	ConfigurationName fleet.GroupName   `json:"configurationName"`
	WrapperNodeID     fleet.NodeID      `json:"wrapperNodeId"` // "" before placement
	HostAddress       string            `json:"hostAddress"`
	AllocatedPort     int               `json:"allocatedPort"` // 0 before placement
	State             string            `json:"state"`
	LastHeartbeat     int64             `json:"lastHeartbeat"` // milliseconds since 1970
	ProcessPID        *int              `json:"processPid"`    // null while no process runs
	AllocatedRAMMB    int               `json:"allocatedRamMB"`
	AllocatedCPU      int               `json:"allocatedCpu"`
	Runtime           fleet.RuntimeName `json:"runtime"`

	Name       string       `json:"name"`
	Reason     fleet.Reason `json:"reason"`
	Message    string       `json:"message"`
	ExitCode   *int         `json:"exitCode"` // null while it runs or if the code is unknown
	Players    *int         `json:"players"`  // null before the first report
	MaxPlayers *int         `json:"maxPlayers"`
	TPS        *float64     `json:"tps"`
	UptimeMs   *int64       `json:"uptimeMs"` // null before the start
	UsedRAMMB  *int64       `json:"usedRamMB"`
	UsedCPU    *float64     `json:"usedCpu"`
	UsedDiskMB *int64       `json:"usedDiskMB"`
	Frozen     bool         `json:"frozen"`
}

// InstanceOf converts an instance of a snapshot.
func InstanceOf(s *view.Snapshot, i *fleet.Instance, now time.Time) Instance {
	reason, message := i.Why()
	plan := planOf(s, i)
	out := Instance{
		ID: i.Intent.ID, ConfigurationName: i.Intent.Group,
		HostAddress: hostOf(s, i, plan), State: stateShown(i),
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
	if report, ok := s.Reports.Get(i.Node()); ok && i.State() != fleet.Offline { // the last report of a lost node is outdated
		out.addReport(report.Instances[i.Intent.ID])
	}
	return out
}

// addReport adds the instance's resource usage and player counts from its node's report.
func (out *Instance) addReport(r reports.InstanceReport) {
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

// planOf returns the plan of the instance. If the plan was already deleted, it is derived from the
// group's current spec.
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

// hostOf returns the advertised address: the one that the agent resolved, else the node's, else the
// declared one.
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

// lastSign returns when the state last changed, or when the current generation was requested if nothing
// was reported since.
func lastSign(i *fleet.Instance) time.Time {
	if i.Status != nil && i.Status.ChangedAt.After(i.Intent.GenerationAt) {
		return i.Status.ChangedAt
	}
	if at := i.FinishedAt(); at.After(i.Intent.GenerationAt) {
		return at
	}
	return i.Intent.GenerationAt
}

// stateShown returns the state of an instance. One that takes no players yet is not ready for clients.
func stateShown(i *fleet.Instance) string {
	if (i.Intent.Standby || i.Intent.Warm) && i.State() == fleet.Online {
		return creating
	}
	return stateOf(i.State())
}

func stateOf(s fleet.State) string {
	switch s {
	case fleet.Unplaced, fleet.Preparing, fleet.Starting:
		return creating
	case fleet.Online, fleet.Stopping:
		return online
	case fleet.Stopped, fleet.Sleeping:
		return stopped
	case fleet.Crashed, fleet.Failed, fleet.Offline:
		return offline
	}
	return offline
}

// Hidden reports whether the list omits an instance: it finished a while ago, is not frozen and does not
// sleep.
func Hidden(i *fleet.Instance, now time.Time) bool {
	if i.Intent.Frozen || i.State() == fleet.Sleeping {
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
