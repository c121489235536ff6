package fleet

import (
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// RCON configures Source's remote console, a second channel for commands that Minecraft and many
// other servers support. An empty Port disables it.
type RCON struct {
	// Port is the name of the additional TCP port the server listens on for RCON.
	Port string `json:"port,omitempty"`
	// Password is the password configured in the server. Placeholders are allowed.
	Password string `json:"password,omitempty"`
}

// Hide returns r with its password, if any, replaced by Hidden.
func (r RCON) Hide() RCON {
	if r.Password != "" {
		r.Password = content.Hidden
	}
	return r
}

func (r RCON) validate(ports []NamedPort) []error {
	var p validate.Problems
	if r.Port == "" {
		p.Check(r.Password == "", "rcon.port", "is required with a password: set it to the name of the additional port for RCON")
		return p.List
	}
	found := false
	for _, n := range ports {
		found = found || strings.EqualFold(n.Name, r.Port) && n.Protocol == "tcp"
	}
	p.Check(found, "rcon.port", "%q is not the name of an additional TCP port", validate.Clip(r.Port))
	p.Check(r.Password != "", "rcon.password", "is required: servers refuse an empty password")
	p.Check(r.Password != content.Hidden, "rcon.password", "%s keeps the current password, but the group has no password yet: enter one", content.Hidden)
	p.Check(len(r.Password) <= validate.MaxStopCommand && !validate.HasControl(r.Password), "rcon.password", "must be at most %d bytes without control characters", validate.MaxStopCommand)
	return p.List
}
