package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxNetworks bounds the networks there may be.
const maxNetworks = 500

// NetworkWrite asks for a network to be as it says.
type NetworkWrite struct {
	// Network is the wanted one; By and the times are set when it is written.
	Network fleet.Network
	// Create wants the network to be new; otherwise it has to be there.
	Create bool
	// IfMatch is the revision it must be at; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
}

// NetworkWritten is what came of a NetworkWrite.
type NetworkWritten struct {
	// Before is nil when the network was created.
	Before *fleet.Network
	// After is the network as written, of a dry run as it would be.
	After fleet.Network
}

// WriteNetwork makes a network, or replaces it. Invalid names every field at fault, also one
// that names a group that does not exist; AlreadyExists and NotFound as Create wants it,
// MovedError when IfMatch does not hold. What changes nothing writes nothing.
func (o *Operations) WriteNetwork(ctx context.Context, by Actor, w NetworkWrite) (out NetworkWritten, err error) {
	if err := joined(w.Network.Validate()); err != nil {
		return out, err
	}
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		old, err := w.target(s)
		if err != nil {
			return change{}, err
		}
		if err := joined(networkReferences(s, w.Network)); err != nil {
			return change{}, err
		}
		out.Before, out.After = old, w.Network
		if old != nil && sameNetwork(*old, w.Network) {
			out.After = *old
			return change{}, nil
		}
		out.After.By, out.After.UpdatedAt = by.User, o.now()
		if out.After.CreatedAt = out.After.UpdatedAt; old != nil {
			out.After.CreatedAt = old.CreatedAt
		}
		if w.DryRun {
			return change{}, nil
		}
		return networkChange(s, old, out.After), nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if n, ok := o.Snapshot().Networks.Get(w.Network.Name); ok {
		out.After = *n
	}
	return out, nil
}

// target is the network a write is about, nil when it is to be made.
func (w NetworkWrite) target(s *view.Snapshot) (*fleet.Network, error) {
	old, ok := s.Networks.Get(w.Network.Name)
	switch {
	case w.Create && ok:
		return nil, errs.New(errs.AlreadyExists, "there is a network %s already", w.Network.Name)
	case w.Create && s.Networks.Len() >= maxNetworks:
		return nil, errs.New(errs.Exhausted, "there are %d networks, the most there may be: delete some", maxNetworks)
	case w.Create:
		return nil, unmoved("network "+w.Network.Name, w.IfMatch, 0)
	case !ok:
		return nil, noNetwork(w.Network.Name)
	}
	return old, unmoved("network "+w.Network.Name, w.IfMatch, old.ModRev)
}

func noNetwork(name string) error {
	return errs.New(errs.NotFound, "there is no network %s", clip(name))
}

// networkReferences are the groups a network names that do not exist, and those that
// should be proxies and are not.
func networkReferences(s *view.Snapshot, n fleet.Network) []error {
	var problems []error
	for _, named := range n.Named() {
		g, ok := s.Groups.Get(named.Group)
		switch {
		case !ok || g.Deleting:
			problems = append(problems, errs.Field(named.Field, "names a group that does not exist: %s", named.Group))
		case strings.HasPrefix(named.Field, "proxyGroups") && !routesPlayers(s, g.Spec.Software.Platform):
			problems = append(problems, errs.Field(named.Field,
				"names a group that is no proxy: %s has the platform %q; set one that is a proxy, such as VELOCITY, or add it to the catalog with category PROXY", named.Group, g.Spec.Software.Platform))
		}
	}
	return problems
}

// routesPlayers reports whether a platform is a proxy, by itself or as the catalog has it.
func routesPlayers(s *view.Snapshot, platform string) bool {
	if fleet.RoutesPlayers(platform) {
		return true
	}
	c, ok := s.Catalog.Get(platform)
	return ok && slices.ContainsFunc(c.Versions, func(v fleet.CatalogVersion) bool { return v.Category == fleet.CategoryProxy })
}

// networkChange writes a network while the groups it names are as they were seen.
func networkChange(s *view.Snapshot, old *fleet.Network, n fleet.Network) change {
	c := change{audit: entry{action: "network.create", resource: "network", id: n.Name, after: networkDetails(n)}}
	var rev int64
	if old != nil {
		rev, c.audit.action, c.audit.before = old.ModRev, "network.update", networkDetails(*old)
	}
	c.writes = []store.Write{store.Replace(store.NetworkKey(n.Name), n, rev), store.Touch(store.MentionMarkKey(), fleet.MentionMark{})}
	guarded := map[fleet.GroupName]bool{}
	for _, named := range n.Named() {
		if g, ok := s.Groups.Get(named.Group); ok && !guarded[named.Group] {
			guarded[named.Group] = true
			c.guards = append(c.guards, store.Unchanged(store.GroupKey(named.Group), g.ModRev))
		}
	}
	return c
}

// networkDetails are what the audit keeps of a network, and what two are compared by.
func networkDetails(n fleet.Network) any {
	return map[string]any{
		"description": n.Description, "lobbyGroup": n.LobbyGroup, "fallbackGroups": n.FallbackGroups, "memberGroups": n.MemberGroups,
		"proxyGroups": n.ProxyGroups, "kickMessage": n.KickMessage, "bedrockLobbyGroup": n.BedrockLobbyGroup, "bedrockFallbackGroups": n.BedrockFallbackGroups,
	}
}

func sameNetwork(a, b fleet.Network) bool {
	b.Rev, b.By, b.CreatedAt, b.UpdatedAt = a.Rev, a.By, a.CreatedAt, a.UpdatedAt
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// DeleteNetwork removes a network. NotFound when there is none; MovedError when ifMatch, if
// it is not 0, does not hold. With dryRun only the checks are made.
func (o *Operations) DeleteNetwork(ctx context.Context, by Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		n, ok := s.Networks.Get(name)
		if !ok {
			return change{}, noNetwork(name)
		}
		if err := unmoved("network "+name, ifMatch, n.ModRev); err != nil || dryRun {
			return change{}, err
		}
		return change{
			writes: []store.Write{store.Remove(store.NetworkKey(name), n.ModRev)},
			audit:  entry{action: "network.delete", resource: "network", id: name, before: networkDetails(*n)},
		}, nil
	})
	return err
}

// unnamed refuses to remove a group that networks name.
func unnamed(s *view.Snapshot, name fleet.GroupName) error {
	var users []string
	for _, n := range s.Networks.All() {
		if n.Names(name) {
			users = append(users, n.Name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return errs.New(errs.Invalid, "group %s is named by %s: change that first", name, listOf("network", users))
}

// listOf is a few of many of one kind, by name.
func listOf(what string, names []string) string {
	if len(names) > 1 {
		what += "s"
	}
	return fmt.Sprintf("%s %s", what, strings.Join(names[:min(len(names), maxProblems)], ", "))
}
