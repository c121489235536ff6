// Package running holds the fields of a group that say how an instance runs: how it is
// asked whether it serves, what it may use, and what it is kept from. Both dialects have
// them under the same names, so they stand here once.
package running

import (
	"cmp"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Fields are those fields as JSON has them. Absent (nil) fields say nothing; of a read
// all are there.
type Fields struct {
	Readiness *fleet.Check    `json:"readiness,omitempty"`
	Liveness  *fleet.Liveness `json:"liveness,omitempty"`
	Limits    *Limits         `json:"limits,omitempty"`
	Confine   *Confine        `json:"confine,omitempty"`
	Container *Container      `json:"container,omitempty"`
	RCON      *RCON           `json:"rcon,omitempty"`
	Startup   *int            `json:"startupTimeoutSeconds,omitempty"`
	Lifetime  *int            `json:"maxLifetimeSeconds,omitempty"`
}

// Limits are bounds beside memory and processor time; 0 sets none.
type Limits struct {
	Processes int `json:"processes"`
	IOWeight  int `json:"ioWeight"`
	DiskMb    int `json:"diskMb"`
	LogMb     int `json:"logMb"`
}

// Confine is a fleet.Confine, shown whole.
type Confine struct {
	User              string `json:"user"`
	NoNewPrivileges   bool   `json:"noNewPrivileges"`
	PrivateTmp        bool   `json:"privateTmp"`
	ReadOnlyTemplates bool   `json:"readOnlyTemplates"`
}

// Container is a fleet.Container, shown whole.
type Container struct {
	Image     string   `json:"image"`
	User      string   `json:"user"`
	Network   string   `json:"network"`
	Volumes   []string `json:"volumes"`
	Directory string   `json:"directory"`
}

// RCON is a fleet.RCON, shown whole.
type RCON struct {
	Port     string `json:"port"`
	Password string `json:"password"`
}

// Onto changes what the fields say of a spec and nothing else.
func (f Fields) Onto(s *fleet.GroupSpec) {
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

// Of shows how a spec has instances run: every field, of checks those that say something.
// The readiness is the one in force.
func Of(s fleet.GroupSpec) Fields {
	s.Readiness = s.ReadinessInForce()
	s.Liveness.Type = cmp.Or(s.Liveness.Type, fleet.CheckNone)
	s.Container.Volumes = append([]string{}, s.Container.Volumes...)
	return Fields{
		Readiness: &s.Readiness, Liveness: &s.Liveness,
		Limits:  &Limits{Processes: s.Limits.Processes, IOWeight: s.Limits.IOWeight, DiskMb: s.Limits.DiskMiB, LogMb: s.Limits.LogMiB},
		Confine: (*Confine)(&s.Confine), Container: (*Container)(&s.Container), RCON: (*RCON)(&s.RCON),
		Startup: &s.StartupTimeoutSeconds, Lifetime: &s.MaxLifetimeSeconds,
	}
}

func set[T any](field *T, given *T) {
	if given != nil {
		*field = *given
	}
}
