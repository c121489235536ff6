package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestANetworkNamesTheFieldThatIsWrong(t *testing.T) {
	many := make([]fleet.GroupName, fleet.MaxNetworkGroups)
	for n := range many {
		many[n] = fleet.GroupName(fmt.Sprintf("g%d", n))
	}
	cases := []struct {
		field string // "" when nothing is wrong
		edit  func(*fleet.Network)
	}{
		{"", func(*fleet.Network) {}},
		{"", func(n *fleet.Network) { n.Name = strings.Repeat("a", 32) }},
		{"", func(n *fleet.Network) { n.Description = strings.Repeat("a", 256) }},
		{"", func(n *fleet.Network) { n.MemberGroups, n.FallbackGroups = many[:99], many[:99] }},
		{"", func(n *fleet.Network) {
			n.FallbackGroups, n.MemberGroups = []fleet.GroupName{"lobby"}, []fleet.GroupName{"lobby"}
		}},
		{"name", func(n *fleet.Network) { n.Name = "" }},
		{"name", func(n *fleet.Network) { n.Name = "-a" }},
		{"name", func(n *fleet.Network) { n.Name = "../a" }},
		{"name", func(n *fleet.Network) { n.Name = strings.Repeat("a", 33) }},
		{"description", func(n *fleet.Network) { n.Description = strings.Repeat("a", 257) }},
		{"kickMessage", func(n *fleet.Network) { n.KickMessage = strings.Repeat("a", 257) }},
		{"kickMessage", func(n *fleet.Network) { n.KickMessage = "\x1b[2J" }},
		{"lobbyGroup", func(n *fleet.Network) { n.LobbyGroup = "" }},
		{"lobbyGroup", func(n *fleet.Network) { n.LobbyGroup = "Lobby" }},
		{"fallbackGroups[1]", func(n *fleet.Network) { n.FallbackGroups = []fleet.GroupName{"a", ""} }},
		{"proxyGroups[1]", func(n *fleet.Network) { n.ProxyGroups = []fleet.GroupName{"a", "a"} }},
		{"bedrockLobbyGroup", func(n *fleet.Network) { n.BedrockLobbyGroup = "a/b" }},
		{"bedrockFallbackGroups[0]", func(n *fleet.Network) { n.BedrockFallbackGroups = []fleet.GroupName{"a b"} }},
		{"memberGroups", func(n *fleet.Network) { n.MemberGroups = many }},
	}
	for _, c := range cases {
		n := fleet.Network{Name: "main", LobbyGroup: "lobby"}
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
