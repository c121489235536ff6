package compose

import (
	"maps"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// PlaceholderContext is the input of the built-in placeholders.
type PlaceholderContext struct {
	Plan      fleet.Plan
	Placement fleet.Placement
	Node      fleet.Node
	// APIHost and APIPort are the gateway's address as seen by nodes.
	APIHost string
	APIPort string
	// HostAddress is the resolved advertised address of the instance. It is empty while it is
	// being resolved.
	HostAddress string
}

// Placeholders returns all placeholder values of an instance: built-ins, then node variables,
// group variables and values given at start, each overriding the ones before. Values given at
// start cannot override built-ins. Secret variables and sealed values are left out.
func Placeholders(c PlaceholderContext) map[string]string {
	p, pl, v := c.Plan, c.Placement, builtIns(c)
	given := maps.Clone(pl.Values)
	maps.DeleteFunc(given, func(k, _ string) bool { return configfile.BuiltIn(k) })
	for _, m := range []map[string]string{c.Node.Variables, p.Variables, given} {
		for k, val := range m {
			if !content.IsSealed(val) { // a secret's value from before the variable's type changed
				v[k] = val
			}
		}
	}
	for k := range p.Secrets {
		delete(v, k)
	}
	return v
}

// builtIns returns the built-in placeholder values, including the ports.
func builtIns(c PlaceholderContext) map[string]string {
	p, pl := c.Plan, c.Placement
	host := c.HostAddress
	if host == "" {
		host = c.Node.Address
	}
	v := map[string]string{
		"PORT":               strconv.Itoa(pl.Port),
		"INSTANCE_ID":        string(pl.Instance),
		"INSTANCE_NAME":      pl.Name,
		"GROUP":              string(pl.Group),
		"CONFIGURATION_NAME": string(pl.Group),
		"INSTANCE_GROUPS":    strings.Join(p.InstanceGroups, ";"),
		"NODE_ID":            string(pl.Node),
		"NODE_ADDRESS":       c.Node.Address,
		"HOST_ADDRESS":       host,
		"RAM_MB":             strconv.Itoa(p.Resources.MemoryMiB),
		"MEMORY":             strconv.Itoa(p.Resources.MemoryMiB),
		"MAX_PLAYERS":        strconv.Itoa(p.MaxPlayers),
		"MASTER_IP":          c.APIHost,
		"MASTER_ADDRESS":     c.APIHost,
		"MASTER_PORT":        c.APIPort,
		"MASTER_API_PORT":    c.APIPort,
		"NODE_PORT":          c.Node.AgentPort(),
	}
	for name, port := range pl.Ports {
		v["PORT_"+strings.ToUpper(name)] = strconv.Itoa(port)
	}
	return v
}
