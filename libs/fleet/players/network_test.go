package players_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

func TestNetworkValidationNamesField(t *testing.T) {
	many := make([]fleet.GroupName, players.MaxNetworkGroups)
	for n := range many {
		many[n] = fleet.GroupName(fmt.Sprintf("g%d", n))
	}
	cases := []struct {
		field string // "" when nothing is wrong
		edit  func(*players.Network)
	}{
		{"", func(*players.Network) {}},
		{"", func(n *players.Network) { n.Name = strings.Repeat("a", 32) }},
		{"", func(n *players.Network) { n.Description = strings.Repeat("a", 256) }},
		{"", func(n *players.Network) { n.MemberGroups, n.FallbackGroups = many[:99], many[:99] }},
		{"", func(n *players.Network) {
			n.FallbackGroups, n.MemberGroups = []fleet.GroupName{"lobby"}, []fleet.GroupName{"lobby"}
		}},
		{"name", func(n *players.Network) { n.Name = "" }},
		{"name", func(n *players.Network) { n.Name = "-a" }},
		{"name", func(n *players.Network) { n.Name = "../a" }},
		{"name", func(n *players.Network) { n.Name = strings.Repeat("a", 33) }},
		{"description", func(n *players.Network) { n.Description = strings.Repeat("a", 257) }},
		{"kickMessage", func(n *players.Network) { n.KickMessage = strings.Repeat("a", 257) }},
		{"kickMessage", func(n *players.Network) { n.KickMessage = "\x1b[2J" }},
		{"lobbyGroup", func(n *players.Network) { n.LobbyGroup = "" }},
		{"lobbyGroup", func(n *players.Network) { n.LobbyGroup = "Lobby" }},
		{"fallbackGroups[1]", func(n *players.Network) { n.FallbackGroups = []fleet.GroupName{"a", ""} }},
		{"proxyGroups[1]", func(n *players.Network) { n.ProxyGroups = []fleet.GroupName{"a", "a"} }},
		{"bedrockLobbyGroup", func(n *players.Network) { n.BedrockLobbyGroup = "a/b" }},
		{"bedrockFallbackGroups[0]", func(n *players.Network) { n.BedrockFallbackGroups = []fleet.GroupName{"a b"} }},
		{"memberGroups", func(n *players.Network) { n.MemberGroups = many }},
	}
	for _, c := range cases {
		n := players.Network{Name: "main", LobbyGroup: "lobby"}
		c.edit(&n)
		problems := n.Validate()
		switch {
		case c.field == "" && len(problems) > 0:
			t.Errorf("%+v: %v", n, problems)
		case c.field != "" && (len(problems) != 1 || errs.FieldOf(problems[0]) != c.field || !errs.Is(problems[0], errs.Invalid)):
			t.Errorf("%+v: %v, want %s to be blamed", n, problems, c.field)
		}
	}
}
