package clusterops

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxNetworks bounds the networks there may be.
const maxNetworks = 500

// NetworkWrite creates or replaces a network.
type NetworkWrite struct {
	// Network is the desired network. The write sets By and the times.
	Network players.Network
	// Create requires that the network does not exist. Otherwise it must exist.
	Create bool
	// IfMatch is the revision it must be at; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// NetworkWritten is the result of a NetworkWrite.
type NetworkWritten struct {
	// Before is nil when the network was created.
	Before *players.Network
	// After is the network as written, or as a dry run would write it.
	After players.Network
}

// WriteNetwork creates or replaces a network. Invalid names every wrong field, such as a group that
// does not exist; AlreadyExists and NotFound according to Create; MovedError when IfMatch does not
// match. It writes nothing when nothing changes.
func (o *Cluster) WriteNetwork(ctx context.Context, by txn.Actor, w NetworkWrite) (out NetworkWritten, err error) {
	if err := txn.JoinProblems(w.Network.Validate()); err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := w.target(s)
		if err != nil {
			return txn.Change{}, err
		}
		if err := txn.JoinProblems(networkReferences(s, w.Network)); err != nil {
			return txn.Change{}, err
		}
		out.Before, out.After = old, w.Network
		if old != nil && sameNetwork(*old, w.Network) {
			out.After = *old
			return txn.Change{}, nil
		}
		out.After.By, out.After.UpdatedAt = by.User, o.Now()
		if out.After.CreatedAt = out.After.UpdatedAt; old != nil {
			out.After.CreatedAt = old.CreatedAt
		}
		if w.DryRun {
			return txn.Change{}, nil
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

// target returns the network to replace, or nil when it is new.
func (w NetworkWrite) target(s *view.Snapshot) (*players.Network, error) {
	old, ok := s.Networks.Get(w.Network.Name)
	switch {
	case w.Create && ok:
		return nil, errs.New(errs.AlreadyExists, "there is a network %s already", w.Network.Name)
	case w.Create && s.Networks.Len() >= maxNetworks:
		return nil, errs.New(errs.Exhausted, "there are %d networks, the most there may be: delete some", maxNetworks)
	case w.Create:
		return nil, txn.CheckRevision("network "+w.Network.Name, w.IfMatch, 0)
	case !ok:
		return nil, noNetwork(w.Network.Name)
	}
	return old, txn.CheckRevision("network "+w.Network.Name, w.IfMatch, old.ModRev)
}

func noNetwork(name string) error {
	return errs.New(errs.NotFound, "there is no network %s", txn.Clip(name))
}

// networkReferences returns problems with groups that a network names: missing ones, and ones that
// should be proxies.
func networkReferences(s *view.Snapshot, n players.Network) []error {
	var problems []error
	for _, named := range n.Named() {
		g, ok := s.Groups.Get(named.Group)
		switch {
		case !ok || g.Deleting:
			problems = append(problems, errs.Field(named.Field, "names a group that does not exist: %s", named.Group))
		case strings.HasPrefix(named.Field, "proxyGroups") && !routesPlayers(s, s.Whole(g).Spec.Software.Platform):
			problems = append(problems, errs.Field(named.Field,
				"names a group that is no proxy: %s has the platform %q; set one that is a proxy, such as VELOCITY, or add it to the catalog with category PROXY", named.Group, s.Whole(g).Spec.Software.Platform))
		}
	}
	return problems
}

// routesPlayers reports whether a platform is a proxy, built in or according to the catalog.
func routesPlayers(s *view.Snapshot, platform string) bool {
	if fleet.RoutesPlayers(platform) {
		return true
	}
	c, ok := s.Catalog.Get(platform)
	return ok && slices.ContainsFunc(c.Versions, func(v content.CatalogVersion) bool { return v.Category == content.CategoryProxy })
}

// networkChange returns the change that writes a network, if the groups it names are still as the
// snapshot shows them.
func networkChange(s *view.Snapshot, old *players.Network, n players.Network) txn.Change {
	c := txn.Change{Audit: txn.Entry{Action: "network.create", Resource: "network", ID: n.Name, After: networkDetails(n)}}
	var rev int64
	if old != nil {
		rev, c.Audit.Action, c.Audit.Before = old.ModRev, "network.update", networkDetails(*old)
	}
	c.Writes = []store.Write{store.Replace(keys.Network(n.Name), n, rev), store.Touch(keys.MentionMark(), players.MentionMark{})}
	guarded := map[fleet.GroupName]bool{}
	for _, named := range n.Named() {
		if g, ok := s.Groups.Get(named.Group); ok && !guarded[named.Group] {
			guarded[named.Group] = true
			c.Guards = append(c.Guards, store.Unchanged(keys.Group(named.Group), g.ModRev))
		}
	}
	return c
}

// networkDetails returns the fields of a network that are audited and compared.
func networkDetails(n players.Network) any {
	return map[string]any{
		"description": n.Description, "lobbyGroup": n.LobbyGroup, "fallbackGroups": n.FallbackGroups, "memberGroups": n.MemberGroups,
		"proxyGroups": n.ProxyGroups, "kickMessage": n.KickMessage, "bedrockLobbyGroup": n.BedrockLobbyGroup, "bedrockFallbackGroups": n.BedrockFallbackGroups,
	}
}

func sameNetwork(a, b players.Network) bool {
	b.Rev, b.By, b.CreatedAt, b.UpdatedAt = a.Rev, a.By, a.CreatedAt, a.UpdatedAt
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// DeleteNetwork removes a network. NotFound when it does not exist, MovedError when ifMatch is not
// 0 and not its revision. With dryRun it only checks.
func (o *Cluster) DeleteNetwork(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		n, ok := s.Networks.Get(name)
		if !ok {
			return txn.Change{}, noNetwork(name)
		}
		if err := txn.CheckRevision("network "+name, ifMatch, n.ModRev); err != nil || dryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Remove(keys.Network(name), n.ModRev)},
			Audit:  txn.Entry{Action: "network.delete", Resource: "network", ID: name, Before: networkDetails(*n)},
		}
		c.DropApplied(s, applied.Network, name)
		return c, nil
	})
	return err
}
