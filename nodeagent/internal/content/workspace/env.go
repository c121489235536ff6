package workspace

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// Host holds the host's part of an instance's environment.
type Host struct {
	// Path is the search path, User the agent's user name. Empty ones are omitted, as for an
	// image that has its own.
	Path, User string
}

// Environ returns the complete, sorted environment of an instance: basic variables, its
// identity under the names of all dialects, and the plan's variables, which override all but
// ORRERY_INSTANCE_ID. The agent finds processes by that one.
func Environ(h Host, r Request, dir, token, apiURL string) (env, notes []string) {
	p := r.Placement
	apiHost, apiPort := APIAddress(apiURL)
	id, port, node, group := string(p.Instance), strconv.Itoa(p.Port), string(p.Node), string(p.Group)
	v := map[string]string{
		"HOME": dir, "LANG": "C.UTF-8", "TERM": "xterm-256color",

		"UNIVERSE_INSTANCE_ID": id, "UNIVERSE_MASTER_URL": apiURL, "UNIVERSE_API_KEY": token,

		"CLOUD_INSTANCE_ID": p.Name, "CLOUD_GROUP": group, "CLOUD_PORT": port, "CLOUD_NODE_ID": node,
		"CLOUD_PLUGIN_TOKEN": token, "CLOUD_CONTROLLER_URL": apiURL,
		"CLOUD_CONTROLLER_HOST": apiHost, "CLOUD_CONTROLLER_PORT": apiPort,

		"ORRERY_INSTANCE_NAME": p.Name, "ORRERY_GROUP": group, "ORRERY_NODE": node, "ORRERY_PORT": port,
		"ORRERY_TOKEN": token, "ORRERY_API_URL": apiURL,
	}
	if h.Path != "" {
		v["PATH"] = h.Path
	}
	if h.User != "" { // a confined user exists only outside containers
		v["USER"] = cmp.Or(r.Plan.Confine.User, h.User)
		if r.UID != 0 {
			v["USER"] = strconv.Itoa(r.UID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Plan.Env)) {
		value, unknown := render.Substitute(r.Plan.Env[name], r.Values)
		v[name] = value
		for _, u := range unknown {
			notes = append(notes, render.UnknownNote(u, "env "+name))
		}
	}
	v["ORRERY_INSTANCE_ID"] = id
	for _, name := range slices.Sorted(maps.Keys(v)) {
		env = append(env, name+"="+v[name])
	}
	return env, notes
}

// APIAddress returns the host and port of a URL, by default the port of its scheme.
func APIAddress(apiURL string) (host, port string) {
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" {
		return "", ""
	}
	port = u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Hostname(), port
}

// Values returns the placeholder values of an instance and its advertised address, in which
// placeholders are replaced too.
func Values(plan fleet.Plan, p fleet.Placement, node fleet.Node, apiURL string) (values map[string]string, hostAddress string, notes []string) {
	host, port := APIAddress(apiURL)
	c := compose.PlaceholderContext{Plan: plan, Placement: p, Node: node, APIHost: host, APIPort: port}
	hostAddress = node.Address
	if plan.HostAddress != "" {
		resolved, unknown := render.Substitute(plan.HostAddress, compose.Placeholders(c))
		hostAddress = resolved
		for _, u := range unknown {
			notes = append(notes, render.UnknownNote(u, "hostAddress"))
		}
	}
	c.HostAddress = hostAddress
	return compose.Placeholders(c), hostAddress, notes
}
