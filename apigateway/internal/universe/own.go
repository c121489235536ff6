package universe

import (
	"maps"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ownGroup is the group of the instance that makes the request with its own token; "" when
// somebody else makes it.
func ownGroup(c *gin.Context, s *view.Snapshot) fleet.GroupName {
	if i, ok := s.Instances.Get(server.OwnInstance(c)); ok {
		return i.Intent.Group
	}
	return ""
}

// sightOf tells which groups' instances somebody sees. own is the group of an instance: it
// sees the groups that share a network with its own, or without a network all groups that
// are in none. Whoever is no instance, own is "", sees all.
func sightOf(s *view.Snapshot, own fleet.GroupName) func(fleet.GroupName) bool {
	if own == "" {
		return func(fleet.GroupName) bool { return true }
	}
	return s.NetworkPeers(own)
}

// toInstance is a configuration without what instances are not told: its environment, the
// rules that write values into its files, and properties that are masked, refer to a secret
// or sound like one.
func (out Configuration) toInstance() Configuration {
	out.EnvironmentVariables, out.ConfigRules = nil, &[]fleet.ConfigPatch{}
	out.Properties = maps.Clone(out.Properties)
	maps.DeleteFunc(out.Properties, func(key, value string) bool {
		_, err := fleet.ParseSecretRef(value)
		return value == fleet.Hidden || err == nil || secretly.MatchString(key)
	})
	return out
}
