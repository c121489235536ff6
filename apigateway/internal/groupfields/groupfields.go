// Package groupfields holds the fields of a group that both dialects of the API have under the same
// names.
package groupfields

import (
	"cmp"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

// Files are the fields that say how the files of an instance are made from its templates. A nil
// field was not given; a read sets every field.
type Files struct {
	// AutoLayers puts the templates base, base-<platform> and the group's own below the others.
	AutoLayers *bool `json:"autoLayers,omitempty"`
	// MergeFiles are globs of the files that are merged layer by layer. An empty list merges none.
	MergeFiles *[]string `json:"mergeFiles,omitempty"`
	// ConfigRules are patches. They are applied after configPatches.
	ConfigRules *[]configfile.ConfigPatch `json:"configRules,omitempty"`
}

// Apply sets the given fields in a spec.
func (f Files) Apply(s *fleet.GroupSpec) {
	if f.AutoLayers != nil {
		s.AutoLayers = *f.AutoLayers
	}
	if f.MergeFiles != nil {
		s.MergeFiles = append([]string(nil), *f.MergeFiles...)
	}
	if f.ConfigRules != nil {
		s.ConfigRules = append([]configfile.ConfigPatch(nil), *f.ConfigRules...)
		for i, r := range s.ConfigRules {
			s.ConfigRules[i].Op = configfile.PatchOp(strings.ToUpper(string(r.Op)))
		}
	}
}

// FilesOf returns all of these fields of a spec.
func FilesOf(s fleet.GroupSpec) Files {
	return Files{
		AutoLayers:  &s.AutoLayers,
		MergeFiles:  new(append([]string{}, s.MergeFiles...)),
		ConfigRules: new(append([]configfile.ConfigPatch{}, s.ConfigRules...)),
	}
}

// Process are the fields that say how an instance runs: its health checks, its limits and what it
// is isolated from. A nil field was not given; a read sets every field.
type Process struct {
	Readiness *fleet.Check    `json:"readiness,omitempty"`
	Liveness  *fleet.Liveness `json:"liveness,omitempty"`
	Limits    *Limits         `json:"limits,omitempty"`
	Confine   *Confine        `json:"confine,omitempty"`
	Container *Container      `json:"container,omitempty"`
	RCON      *RCON           `json:"rcon,omitempty"`
	Startup   *int            `json:"startupTimeoutSeconds,omitempty"`
	Lifetime  *int            `json:"maxLifetimeSeconds,omitempty"`
}

// Limits are the limits other than memory and CPU. 0 means no limit.
type Limits struct {
	Processes int `json:"processes"`
	IOWeight  int `json:"ioWeight"`
	DiskMb    int `json:"diskMb"`
	LogMb     int `json:"logMb"`
}

// Confine is a fleet.Confine, with every field in its JSON.
type Confine struct {
	User              string `json:"user"`
	NoNewPrivileges   bool   `json:"noNewPrivileges"`
	PrivateTmp        bool   `json:"privateTmp"`
	ReadOnlyTemplates bool   `json:"readOnlyTemplates"`
}

// Container is a fleet.Container, with every field in its JSON.
type Container struct {
	Image     string   `json:"image"`
	User      string   `json:"user"`
	Network   string   `json:"network"`
	Volumes   []string `json:"volumes"`
	Directory string   `json:"directory"`
}

// RCON is a fleet.RCON, with every field in its JSON.
type RCON struct {
	Port     string `json:"port"`
	Password string `json:"password"`
}

// Apply sets the given fields in a spec.
func (f Process) Apply(s *fleet.GroupSpec) {
	if f.Readiness != nil {
		s.Readiness = *f.Readiness
		s.Readiness.Type = cmp.Or(s.Readiness.Type, fleet.CheckNone)
	}
	if set(&s.Liveness, f.Liveness); s.Liveness.Type == fleet.CheckNone {
		s.Liveness.Type = "" // not given means the same
	}
	if l := f.Limits; l != nil {
		s.Limits = fleet.Limits{Processes: l.Processes, IOWeight: l.IOWeight, DiskMiB: l.DiskMb, LogMiB: l.LogMb}
	}
	set(&s.Confine, (*fleet.Confine)(f.Confine))
	if c := f.Container; c != nil {
		s.Container = fleet.Container(*c)
		if len(c.Volumes) == 0 {
			s.Container.Volumes = nil // not given means the same
		}
	}
	set(&s.RCON, (*fleet.RCON)(f.RCON))
	set(&s.StartupTimeoutSeconds, f.Startup)
	set(&s.MaxLifetimeSeconds, f.Lifetime)
}

// ProcessOf returns all of these fields of a spec. Readiness is the check in force.
func ProcessOf(s fleet.GroupSpec) Process {
	s.Readiness = s.ReadinessInForce()
	s.Liveness.Type = cmp.Or(s.Liveness.Type, fleet.CheckNone)
	s.Container.Volumes = append([]string{}, s.Container.Volumes...)
	return Process{
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
