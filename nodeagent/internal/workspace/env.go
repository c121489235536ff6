package workspace

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

// Host is what an instance's environment takes over from its host.
type Host struct {
	// Path is the search path, User the name the agent runs under. An empty one is
	// left out, as inside an image that has its own.
	Path, User string
}

// Environ is the complete environment of an instance, sorted: a few basics, its
// identity under the names of all dialects, and the plan's own variables with
// placeholders replaced, which win over all but the mark processes are found by.
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
	if h.User != "" { // confinement to a user is of the host's own
		v["USER"] = cmp.Or(r.Plan.Confine.User, h.User)
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

// APIAddress is the host and port of a URL; the scheme's port when it names none.
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

// Values are the placeholder values of an instance and its advertised address,
// which may itself be made of placeholders.
func Values(plan fleet.Plan, p fleet.Placement, node fleet.Node, apiURL string) (values map[string]string, hostAddress string, notes []string) {
	host, port := APIAddress(apiURL)
	c := fleet.PlaceholderContext{Plan: plan, Placement: p, Node: node, APIHost: host, APIPort: port}
	hostAddress = node.Address
	if plan.HostAddress != "" {
		resolved, unknown := render.Substitute(plan.HostAddress, fleet.Placeholders(c))
		hostAddress = resolved
		for _, u := range unknown {
			notes = append(notes, render.UnknownNote(u, "hostAddress"))
		}
	}
	c.HostAddress = hostAddress
	return fleet.Placeholders(c), hostAddress, notes
}
