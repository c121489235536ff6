package supervise

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Live is what is known of an instance now.
type Live struct {
	Status fleet.Status
	Name   string
	// Port is its main port; 0 when it has none.
	Port int
	// Ports are its additional ones, by name.
	Ports map[string]int
	// Grace is how long its stop sequence may take at most.
	Grace time.Duration
	// Orphan is true when the store has no record of it.
	Orphan bool
	// Held is true while nothing is done with it, since the host was restarted or the
	// data directory is a copy: what its journal says may run elsewhere. It is shown as
	// OFFLINE then.
	Held bool
	// Report is what the instance last said from inside.
	Report fleet.InstanceReport
	// Said is the state it last gave itself; empty when it never did.
	Said string
	// Attach is the shell command that shows its terminal on its node; empty when it has none.
	Attach string
}

// Live is what is known of the instance now.
func (i *Instance) Live() Live {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := i.live
	if i.told { // who counts its players one by one is not asked for their number
		l.Report.Players, l.Report.PlayersKnown = i.kit.Players.Count(i.id), true
	}
	if l.Status.PID == 0 {
		l.Report.Usage = l.Report.Usage.DiskOnly()
	}
	if !l.Status.State.Running() && !i.built.plan.Static { // its directory goes with the run
		l.Report.Usage = fleet.Usage{}
	}
	if l.Held {
		l.Status.State, l.Status.Reason, l.Status.Message, l.Status.PID = fleet.Offline, fleet.ReasonNoSession, held, 0
	}
	return l
}

// SetUse sets how much memory and processor time the run of a server uses. server is its
// process id: a measurement of an earlier run is dropped.
func (i *Instance) SetUse(server int, u fleet.Usage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.live.Status.PID == server {
		disk := i.live.Report.Usage
		i.live.Report.Usage = fleet.Usage{MemoryBytes: u.MemoryBytes, CPU: u.CPU, CPUKnown: u.CPUKnown, DiskBytes: disk.DiskBytes, DiskKnown: disk.DiskKnown}
	}
}

// Directories are the instance's directories. They are nil when Watch measures them for a
// limit, and when the instance has none: a dynamic one has them only while it runs.
func (i *Instance) Directories() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	plan, placement := i.built.plan, i.built.placement
	running := i.live.Status.State.Running()
	if plan.Group == "" || running && plan.Limits.DiskMiB > 0 || !running && !plan.Static {
		return nil
	}
	return []string{i.kit.Workspace.Dir(placement, plan), i.kit.TmpDir(i.id)}
}

// SetDiskUse sets how many bytes its directories hold.
func (i *Instance) SetDiskUse(used int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live.Report.Usage.DiskBytes, i.live.Report.Usage.DiskKnown = used, true
}
