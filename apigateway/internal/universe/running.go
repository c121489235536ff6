package universe

import (
	"cmp"

	"github.com/orreryhq/orrery/libs/fleet"
)

// runningFields are the native fields that say how an instance runs: how it is asked
// whether it serves, what it may use, and what it is kept from.
type runningFields struct {
	Readiness *fleet.Check     `json:"readiness"`
	Liveness  *fleet.Liveness  `json:"liveness"`
	Limits    *limits          `json:"limits"`
	Confine   *fleet.Confine   `json:"confine"`
	Container *fleet.Container `json:"container"`
	RCON      *fleet.RCON      `json:"rcon"`
	Startup   *int             `json:"startupTimeoutSeconds"`
	Lifetime  *int             `json:"maxLifetimeSeconds"`
}

// limits are bounds beside memory and processor time; 0 sets none.
type limits struct {
	Processes int `json:"processes"`
	IOWeight  int `json:"ioWeight"`
	DiskMb    int `json:"diskMb"`
	LogMb     int `json:"logMb"`
}

func (f runningFields) onto(s *fleet.GroupSpec) {
	if f.Readiness != nil {
		s.Readiness = *f.Readiness
		s.Readiness.Type = cmp.Or(s.Readiness.Type, fleet.CheckNone)
	}
	if set(&s.Liveness, f.Liveness); s.Liveness.Type == fleet.CheckNone {
		s.Liveness.Type = "" // the same, whether it was said or not
	}
	if l := f.Limits; l != nil {
		s.Limits = fleet.Limits{Processes: l.Processes, IOWeight: l.IOWeight, DiskMiB: l.DiskMb, LogMiB: l.LogMb}
	}
	set(&s.Confine, f.Confine)
	set(&s.Container, f.Container)
	set(&s.RCON, f.RCON)
	set(&s.StartupTimeoutSeconds, f.Startup)
	set(&s.MaxLifetimeSeconds, f.Lifetime)
}
