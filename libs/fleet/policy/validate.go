package policy

import (
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Validate returns everything that is wrong with p, as Invalid errors that name the setting.
func (p Policy) Validate() []error {
	var problems validate.Problems
	each := func(setting string, list []string, valid func(string) bool, wants string) {
		problems.Check(len(list) <= validate.MaxEntries, setting, "must have at most %d entries", validate.MaxEntries)
		if len(list) > validate.MaxEntries {
			return
		}
		for _, entry := range list {
			problems.Check(entry == Any || valid(entry), setting, "%q is not %s, or * for all", validate.Clip(entry), wants)
		}
	}
	each(SettingUsers, p.Users, isolation.HostUser, "a user name or number")
	each(SettingContainerUsers, p.ContainerUsers, isolation.ContainerUser, "a container user: user or user:group")
	each(SettingVolumes, p.Volumes, func(s string) bool { return isolation.VolumeSource(s) && !strings.Contains(s, Any) }, "an absolute path without .. or a volume's name")
	each(SettingNetworks, p.Networks, isolation.NetworkName, "a network's name")
	each(SettingImages, p.Images, func(s string) bool { _, ok := parsePattern(s); return ok }, "an image such as ghcr.io/team/server:1, ghcr.io/team/server or ghcr.io/team/*")
	return problems.List
}
