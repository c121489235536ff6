package rest

import (
	"cmp"

	"github.com/orreryhq/orrery/libs/fleet"
)

// runningFields are the fields of a group that say how an instance runs: how it is
// asked whether it serves, what it may use, and what it is kept from.
type runningFields struct {
	Readiness *fleet.Check    `json:"readiness,omitempty"`
	Liveness  *fleet.Liveness `json:"liveness,omitempty"`
	Limits    *limits         `json:"limits,omitempty"`
	Confine   *confine        `json:"confine,omitempty"`
	Container *container      `json:"container,omitempty"`
	RCON      *remoteConsole  `json:"rcon,omitempty"`
	Startup   *int            `json:"startupTimeoutSeconds,omitempty"`
	Lifetime  *int            `json:"maxLifetimeSeconds,omitempty"`
}

// limits are bounds beside memory and processor time; 0 sets none.
type limits struct {
	Processes int `json:"processes"`
	IOWeight  int `json:"ioWeight"`
	DiskMb    int `json:"diskMb"`
	LogMb     int `json:"logMb"`
}

type confine struct {
	User              string `json:"user"`
	NoNewPrivileges   bool   `json:"noNewPrivileges"`
	PrivateTmp        bool   `json:"privateTmp"`
	ReadOnlyTemplates bool   `json:"readOnlyTemplates"`
}

type container struct {
	Image     string   `json:"image"`
	User      string   `json:"user"`
	Network   string   `json:"network"`
	Volumes   []string `json:"volumes"`
	Directory string   `json:"directory"`
}

type remoteConsole struct {
	Port     string `json:"port"`
	Password string `json:"password"`
}

func (f runningFields) onto(s *fleet.GroupSpec) {
	set(&s.Readiness, f.Readiness)
	s.Readiness.Type = cmp.Or(s.Readiness.Type, fleet.CheckNone)
	if set(&s.Liveness, f.Liveness); s.Liveness.Type == fleet.CheckNone {
		s.Liveness.Type = "" // the same, whether it was said or not
	}
	if l := f.Limits; l != nil {
		s.Limits = fleet.Limits{Processes: l.Processes, IOWeight: l.IOWeight, DiskMiB: l.DiskMb, LogMiB: l.LogMb}
	}
	set(&s.Confine, (*fleet.Confine)(f.Confine))
	if c := f.Container; c != nil {
		s.Container = fleet.Container(*c)
		if len(c.Volumes) == 0 {
			s.Container.Volumes = nil // the same, whether it was said or not
		}
	}
	set(&s.RCON, (*fleet.RCON)(f.RCON))
	set(&s.StartupTimeoutSeconds, f.Startup)
	set(&s.MaxLifetimeSeconds, f.Lifetime)
}

// runningOf shows how a spec has instances run: every field, of checks those that say something.
func runningOf(s fleet.GroupSpec) runningFields {
	s.Liveness.Type = cmp.Or(s.Liveness.Type, fleet.CheckNone)
	s.Container.Volumes = *list(s.Container.Volumes)
	return runningFields{
		Readiness: &s.Readiness, Liveness: &s.Liveness,
		Limits:  &limits{Processes: s.Limits.Processes, IOWeight: s.Limits.IOWeight, DiskMb: s.Limits.DiskMiB, LogMb: s.Limits.LogMiB},
		Confine: (*confine)(&s.Confine), Container: (*container)(&s.Container), RCON: (*remoteConsole)(&s.RCON),
		Startup: &s.StartupTimeoutSeconds, Lifetime: &s.MaxLifetimeSeconds,
	}
}
