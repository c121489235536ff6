package fleet

import (
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// MaxStatusMessage bounds the message of a status in bytes, because a node writes many at once.
const MaxStatusMessage = 4 << 10

// validateShown checks the texts a group shows, and related lists.
func (s GroupSpec) validateShown() []error {
	var p validate.Problems
	p.Word("platform", s.Software.Platform, validate.MaxWord)
	p.Word("platformVersion", s.Software.PlatformVersion, validate.MaxWord)
	p.Check(s.Players.Max >= 0 && s.Players.Max <= validate.MaxPlayers, "maxPlayers", "must be between 0 and %d, is %d", validate.MaxPlayers, s.Players.Max)
	p.AddAll(s.Maintenance.Validate("maintenanceMessage", "maintenanceBypass"))
	p.Each("motds", s.Motd.Lines, p.Lines, validate.MaxShown)
	p.Check(validate.OneOf(s.Motd.Mode, "", "STATIC", "SEQUENTIAL", "RANDOM"), "motdMode", "must be STATIC, SEQUENTIAL or RANDOM, not %q", validate.Clip(s.Motd.Mode))
	p.Seconds("motdIntervalSeconds", s.Motd.IntervalSeconds)
	c := s.Composition
	p.Each("attachedModules", c.AttachedModules, p.Word, validate.MaxWord)
	p.Each("enabledModules", c.EnabledModules, p.Word, validate.MaxWord)
	p.Each("disabledModules", c.DisabledModules, p.Word, validate.MaxWord)
	p.Each("attachedExtensions", c.AttachedExtensions, p.Word, validate.MaxWord)
	p.Each("enabledExtensions", c.EnabledExtensions, p.Word, validate.MaxWord)
	p.Each("disabledExtensions", c.DisabledExtensions, p.Word, validate.MaxWord)
	return p.List
}
