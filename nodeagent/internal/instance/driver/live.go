package driver

import (
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// Live is a snapshot of an instance.
type Live struct {
	Status fleet.Status
	Name   string
	// Port is the main port; 0 if there is none.
	Port int
	// Ports are the additional ports by name.
	Ports map[string]int
	// Grace bounds the duration of the stop sequence.
	Grace time.Duration
	// Orphan is true if the store has no record of the instance.
	Orphan bool
	// Held is true while the agent does not act on the instance, because the host was restarted
	// or the data directory is a copy: the instance may run elsewhere. Its state is then shown
	// as OFFLINE.
	Held bool
	// Report is what the instance last reported, and its resource usage.
	Report reports.InstanceReport
	// Said is the state that the instance last reported; empty if it never did.
	Said string
	// Attach is the shell command that shows its terminal on its node; empty without a terminal.
	Attach string
}

// Uses reports whether a port is one of the instance's.
func (l Live) Uses(port int) bool {
	return l.Port == port || slices.Contains(slices.Collect(maps.Values(l.Ports)), port)
}

// Live returns a snapshot of the instance.
func (i *Instance) Live() Live {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := i.live
	if i.tracksPlayers { // the players are counted one by one
		l.Report.Players, l.Report.PlayersKnown = i.deps.Players.Count(i.id), true
	}
	if l.Status.PID == 0 {
		l.Report.Usage = l.Report.Usage.DiskOnly()
	}
	if !l.Status.State.Running() && l.Status.State != fleet.Sleeping && !i.built.plan.Static { // its directory is removed
		l.Report.Usage = reports.Usage{}
	}
	if l.Held {
		l.Status.State, l.Status.Reason, l.Status.Message, l.Status.PID = fleet.Offline, fleet.ReasonNoSession, heldMessage, 0
	}
	return l
}

// SetUse sets how much memory and CPU time a run uses. server is the run's process id: the
// measurement of an earlier run is ignored.
func (i *Instance) SetUse(server int, u reports.Usage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.live.Status.PID == server {
		disk := i.live.Report.Usage
		i.live.Report.Usage = reports.Usage{MemoryBytes: u.MemoryBytes, CPU: u.CPU, CPUKnown: u.CPUKnown, DiskBytes: disk.DiskBytes, DiskKnown: disk.DiskKnown}
	}
}

// Directories are the instance's directories. They are nil if watchDiskLimit measures them because
// of a limit, and for a dynamic instance that does not run, which has none.
func (i *Instance) Directories() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	plan, placement := i.built.plan, i.built.placement
	running := i.live.Status.State.Running()
	kept := plan.Static || i.live.Status.State == fleet.Sleeping
	if plan.Group == "" || running && plan.Limits.DiskMiB > 0 || !running && !kept {
		return nil
	}
	return []string{i.deps.Workspace.Dir(placement, plan), i.deps.TmpDir(i.id)}
}

// SetDiskUse sets the size of its directories in bytes.
func (i *Instance) SetDiskUse(used int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live.Report.Usage.DiskBytes, i.live.Report.Usage.DiskKnown = used, true
}
