package universe

import (
	"maps"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
)

// sightOf returns whether a caller sees a group. own is server.OwnGroup: an instance sees the
// groups that share a network with its own. If its group is in no network, it sees all groups
// that are in none. Other callers, with own "", see all groups.
func sightOf(s *view.Snapshot, own fleet.GroupName) func(fleet.GroupName) bool {
	if own == "" {
		return func(fleet.GroupName) bool { return true }
	}
	return s.NetworkPeers(own)
}

// redactedForInstance is a configuration as instances see it: without its environment, the rules
// that write values into its files, and properties that are masked, refer to a secret or have
// the name of one.
func (out Configuration) redactedForInstance() Configuration {
	out.EnvironmentVariables, out.ConfigRules = nil, &[]configfile.ConfigPatch{}
	out.Properties = maps.Clone(out.Properties)
	maps.DeleteFunc(out.Properties, func(key, value string) bool {
		_, err := content.ParseSecretRef(value)
		return value == content.Hidden || err == nil || secretly.MatchString(key)
	})
	return out
}
