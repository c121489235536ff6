package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Network says which groups players reach through the same proxies, and where they go
// when they join or when an instance fails. The gateway writes it; proxies read it.
type Network struct {
	Rev
	// Name is formed as a group's.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// LobbyGroup is where players go when they join.
	LobbyGroup GroupName `json:"lobbyGroup"`
	// FallbackGroups are tried in this order when the lobby cannot take a player.
	FallbackGroups []GroupName `json:"fallbackGroups,omitempty"`
	// MemberGroups are all others that belong to the network.
	MemberGroups []GroupName `json:"memberGroups,omitempty"`
	// ProxyGroups are those whose proxies serve it; all proxies do when it is empty.
	ProxyGroups []GroupName `json:"proxyGroups,omitempty"`
	// KickMessage is what a player reads whom no group can take.
	KickMessage string `json:"kickMessage,omitempty"`
	// BedrockLobbyGroup and BedrockFallbackGroups are for players of Bedrock Edition; when
	// empty, the others are theirs too.
	BedrockLobbyGroup     GroupName   `json:"bedrockLobbyGroup,omitempty"`
	BedrockFallbackGroups []GroupName `json:"bedrockFallbackGroups,omitempty"`
	By                    string      `json:"by"`
	CreatedAt             time.Time   `json:"createdAt"`
	UpdatedAt             time.Time   `json:"updatedAt"`
}

const (
	// maxNetworkText bounds a network's texts, in bytes.
	maxNetworkText = 256
	// MaxNetworkGroups bounds the groups a network names, each counted once: a transaction
	// compares them all.
	MaxNetworkGroups = 100
)

// NamedGroup is a group, and the field that names it.
type NamedGroup struct {
	Field string
	Group GroupName
}

// Named are the groups the network names, in the order of its fields; one as often as it
// is named.
func (n Network) Named() []NamedGroup {
	var out []NamedGroup
	one := func(field string, g GroupName) {
		if g != "" {
			out = append(out, NamedGroup{field, g})
		}
	}
	many := func(field string, groups []GroupName) {
		for i, g := range groups {
			out = append(out, NamedGroup{fmt.Sprintf("%s[%d]", field, i), g})
		}
	}
	one("lobbyGroup", n.LobbyGroup)
	many("fallbackGroups", n.FallbackGroups)
	many("memberGroups", n.MemberGroups)
	many("proxyGroups", n.ProxyGroups)
	one("bedrockLobbyGroup", n.BedrockLobbyGroup)
	many("bedrockFallbackGroups", n.BedrockFallbackGroups)
	return out
}

// Names reports whether the network names a group.
func (n Network) Names(g GroupName) bool {
	return slices.ContainsFunc(n.Named(), func(named NamedGroup) bool { return named.Group == g })
}

// Validate lists everything wrong with a network by itself, each an Invalid error that
// names the field. Whether its groups exist is for the writer to see.
func (n Network) Validate() []error {
	var p problems
	p.check(groupNamePattern.MatchString(n.Name), "name", "must be 1 to 32 characters of a-z, 0-9, _ and -, not starting with -; %q is not", clip(n.Name))
	text := func(field, s string) {
		p.check(len(s) <= maxNetworkText && !HasControl(s), field, "must be at most %d bytes without control characters", maxNetworkText)
	}
	text("description", n.Description)
	text("kickMessage", n.KickMessage)
	p.check(n.LobbyGroup != "", "lobbyGroup", "is missing: it is where players go when they join")
	var (
		seen   = map[string]bool{}
		groups = map[GroupName]bool{}
	)
	for _, named := range n.Named() {
		list, _, _ := strings.Cut(named.Field, "[")
		p.check(groupNamePattern.MatchString(string(named.Group)), named.Field, "%q is not the name of a group", clip(string(named.Group)))
		p.check(!seen[list+"/"+string(named.Group)], named.Field, "names %s a second time", clip(string(named.Group)))
		seen[list+"/"+string(named.Group)], groups[named.Group] = true, true
	}
	p.check(len(groups) <= MaxNetworkGroups, "memberGroups", "a network names %d groups at most, with all its fields; these are %d", MaxNetworkGroups, len(groups))
	return p.list
}

// RoutesPlayers reports whether a platform that is known without a catalog is a proxy.
func RoutesPlayers(platform string) bool {
	return slices.Contains([]string{"VELOCITY", "BUNGEECORD", "WATERFALL", "GEYSER"}, platform)
}

// MentionMark is moved by each write of a network, and of a group that begins to refer to
// other groups or to a source as storage. So no group or source is deleted that something
// began to name meanwhile.
type MentionMark struct{ Rev }

// Blank is how a damaged record is read: as the mark it is.
func (m *MentionMark) Blank() { *m = MentionMark{} }
