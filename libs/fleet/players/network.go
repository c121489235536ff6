package players

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Network defines which groups players reach through the same proxies, and where players go when
// they join or when an instance fails. The gateway writes it; proxies read it.
type Network struct {
	record.Rev
	// Name has the same form as a GroupName.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// LobbyGroup is the group players join first.
	LobbyGroup fleet.GroupName `json:"lobbyGroup"`
	// FallbackGroups are tried in this order if the lobby cannot take a player.
	FallbackGroups []fleet.GroupName `json:"fallbackGroups,omitempty"`
	// MemberGroups are the other groups of the network.
	MemberGroups []fleet.GroupName `json:"memberGroups,omitempty"`
	// ProxyGroups are the groups whose proxies serve the network. Empty means all proxies.
	ProxyGroups []fleet.GroupName `json:"proxyGroups,omitempty"`
	// KickMessage is shown to a player whom no group can take.
	KickMessage string `json:"kickMessage,omitempty"`
	// BedrockLobbyGroup and BedrockFallbackGroups apply to players of Bedrock Edition. If they are
	// empty, LobbyGroup and FallbackGroups apply to them too.
	BedrockLobbyGroup     fleet.GroupName   `json:"bedrockLobbyGroup,omitempty"`
	BedrockFallbackGroups []fleet.GroupName `json:"bedrockFallbackGroups,omitempty"`
	By                    string            `json:"by"`
	CreatedAt             time.Time         `json:"createdAt"`
	UpdatedAt             time.Time         `json:"updatedAt"`
}

const (
	// maxNetworkText bounds a network's texts, in bytes.
	maxNetworkText = 256
	// MaxNetworkGroups bounds the different groups of a network, because one transaction compares
	// them all.
	MaxNetworkGroups = 100
)

// NamedGroup is a group and the field that refers to it.
type NamedGroup struct {
	Field string
	Group fleet.GroupName
}

// Named returns all references to groups in the order of the fields. A group may occur more than
// once.
func (n Network) Named() []NamedGroup {
	var out []NamedGroup
	one := func(field string, g fleet.GroupName) {
		if g != "" {
			out = append(out, NamedGroup{field, g})
		}
	}
	many := func(field string, groups []fleet.GroupName) {
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

// Names reports whether the network refers to the group.
func (n Network) Names(g fleet.GroupName) bool {
	return slices.ContainsFunc(n.Named(), func(named NamedGroup) bool { return named.Group == g })
}

// Validate returns everything that is wrong with the network itself, each as an Invalid error that
// names the field. It does not check whether the groups exist.
func (n Network) Validate() []error {
	var p validate.Problems
	p.Check(fleet.GroupNamePattern.MatchString(n.Name), "name", "must be 1 to 32 characters of a-z, 0-9, _ and -, not starting with -, not %q", validate.Clip(n.Name))
	text := func(field, s string) {
		p.Check(len(s) <= maxNetworkText && !validate.HasControl(s), field, "must be at most %d bytes without control characters", maxNetworkText)
	}
	text("description", n.Description)
	text("kickMessage", n.KickMessage)
	p.Check(n.LobbyGroup != "", "lobbyGroup", "is required: it is the group players join first")
	var (
		seen   = map[string]bool{}
		groups = map[fleet.GroupName]bool{}
	)
	for _, named := range n.Named() {
		list, _, _ := strings.Cut(named.Field, "[")
		p.Check(fleet.GroupNamePattern.MatchString(string(named.Group)), named.Field, "%q is not a group name", validate.Clip(string(named.Group)))
		p.Check(!seen[list+"/"+string(named.Group)], named.Field, "contains %s twice", validate.Clip(string(named.Group)))
		seen[list+"/"+string(named.Group)], groups[named.Group] = true, true
	}
	p.Check(len(groups) <= MaxNetworkGroups, "memberGroups", "and the other fields may refer to at most %d different groups together, but refer to %d", MaxNetworkGroups, len(groups))
	return p.List
}

// MentionMark changes with each write of a network, and of a group that begins to refer to other
// groups or to a source as storage. A transaction that deletes a group or source compares it, so
// nothing that is newly referenced is deleted.
type MentionMark struct{ record.Rev }

// Blank replaces a damaged record with the zero mark.
func (m *MentionMark) Blank() { *m = MentionMark{} }
