// Package policy finds what imported groups use that nodes refuse until the settings of their agents name it.
package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Need is a setting of the agents with the values that groups use.
type Need struct {
	Setting string
	Values  []string
}

// Note says what to do.
func (n Need) Note() string {
	return fmt.Sprintf("Groups use what nodes refuse by default. Set %s of the agents that shall run them to %s. Until then they wait with the reason NodePolicy (docs/set-limits.md).", n.Setting, strings.Join(n.Values, ","))
}

// Needs collects what groups use beyond a plain process and a plain container. groups are the fields of groups.
func Needs(groups []map[string]any) (needs []Need) {
	found := map[string][]string{}
	add := func(setting, value string) {
		if value != "" && !slices.Contains(found[setting], value) {
			found[setting] = append(found[setting], value)
		}
	}
	for _, fields := range groups {
		confine, _ := fields["confine"].(map[string]any)
		user, _ := confine["user"].(string)
		add("policy.users", user)
		container, _ := fields["container"].(map[string]any)
		inside, _ := container["user"].(string)
		add("policy.container-users", inside)
		if network, _ := container["network"].(string); !slices.Contains([]string{"none", "bridge", "default"}, network) {
			add("policy.networks", network)
		}
		volumes, _ := container["volumes"].([]string)
		for _, v := range volumes {
			host, _, _ := strings.Cut(v, ":")
			add("policy.volumes", host)
		}
	}
	for _, setting := range []string{"policy.users", "policy.container-users", "policy.networks", "policy.volumes"} {
		if values := found[setting]; len(values) > 0 {
			needs = append(needs, Need{setting, values})
		}
	}
	return needs
}
