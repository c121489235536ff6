// Package players holds the players on instances, and networks of proxies and servers.
package players

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// PlayerID is a player's UUID in lower case with dashes.
type PlayerID string

var playerIDPattern = regexp.MustCompile(`^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)

// ParsePlayerID parses a UUID in any case, with or without dashes. The error is Malformed.
func ParsePlayerID(text string) (PlayerID, error) {
	lower := strings.ToLower(text)
	bare := strings.ReplaceAll(lower, "-", "")
	dashes := len(lower) - len(bare)
	if !playerIDPattern.MatchString(lower) || dashes != 0 && dashes != 4 {
		return "", &errs.Error{Kind: errs.Malformed, Field: "uuid", Message: "must be a UUID like 069a79f4-44e9-4726-a5be-fca90e38aaf5, not " + quoted(text)}
	}
	return PlayerID(bare[:8] + "-" + bare[8:12] + "-" + bare[12:16] + "-" + bare[16:20] + "-" + bare[20:]), nil
}

func quoted(s string) string { return strconv.Quote(validate.Clip(s)) }

// PresenceParts is the number of records that hold a node's players. A player who joins or leaves
// changes only one of them.
const PresenceParts = 64

// Limits of player data.
const (
	// MaxPresencePart bounds the players in a part.
	MaxPresencePart = 1000
	// MaxPlayerName and MaxEdition are maximum lengths in bytes.
	MaxPlayerName = 64
	MaxEdition    = 16
)

// Part returns the number of the player's PresencePart, from 0 to PresenceParts-1. It is the same
// on all nodes.
func (p PlayerID) Part() int { return int(record.Hash(string(p)) % PresenceParts) }

// Editions of the game, named as by PrexorCloud's clients.
const (
	EditionJava    = "java"
	EditionBedrock = "bedrock"
)

// bedrockPrefix is the prefix of the UUIDs that Floodgate assigns to players of Bedrock Edition:
// the high half is zero, the low half is the player's XUID.
const bedrockPrefix = "00000000-0000-0000-"

// Edition returns the edition of the game derived from the player's UUID. Bedrock players who are
// linked to a Java account, or joined without Floodgate, have a Java Edition UUID.
func (p PlayerID) Edition() string {
	if strings.HasPrefix(string(p), bedrockPrefix) {
		return EditionBedrock
	}
	return EditionJava
}

// Presence is one instance's report about a player: a server reports who plays on it, a proxy who
// is connected through it.
type Presence struct {
	Player PlayerID `json:"uuid"`
	Name   string   `json:"name"`
	// By is the reporting instance. Proxy is true if it is a proxy.
	By    fleet.InstanceID `json:"by"`
	Proxy bool             `json:"proxy,omitempty"`
	// On is the instance to which a proxy sent the player. It may be empty.
	On fleet.InstanceID `json:"on,omitempty"`
	// Group is the group given in the report. It may be empty.
	Group fleet.GroupName `json:"group,omitempty"`
	// Edition is the edition of the game given by a proxy. It may be empty.
	Edition string `json:"edition,omitempty"`
	// Since is when By first reported the player, At when it last did, by the node's clock.
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
	// Said is the number of the last call that reported the player; 0 means none.
	Said int64 `json:"said,omitempty"`
}

// Validate returns an Invalid error that names the field if the report is not acceptable.
func (p Presence) Validate() error {
	if id, err := ParsePlayerID(string(p.Player)); err != nil || id != p.Player {
		return errs.Field("uuid", "must be a UUID in lower case with dashes, not %s", quoted(string(p.Player)))
	}
	if p.Name == "" || len(p.Name) > MaxPlayerName || validate.HasControl(p.Name) || !utf8.ValidString(p.Name) {
		return errs.Field("name", "must be 1 to %d bytes without control characters, not %s", MaxPlayerName, quoted(p.Name))
	}
	if len(p.Edition) > MaxEdition || validate.HasControl(p.Edition) || !utf8.ValidString(p.Edition) {
		return errs.Field("edition", "must be at most %d bytes without control characters, not %s", MaxEdition, quoted(p.Edition))
	}
	if p.On != "" && !p.On.Valid() {
		return errs.Field("on", "must be an instance ID, not %s", quoted(string(p.On)))
	}
	if p.Group != "" && p.Group.Validate() != nil {
		return errs.Field("group", "must be a group name, not %s", quoted(string(p.Group)))
	}
	return nil
}

// PresencePart is a part of a node's players. The node's agent writes it with its report. Its key
// is removed with the part's last player.
type PresencePart struct {
	record.Rev
	// Part is its number, from 0 to PresenceParts-1.
	Part int
	// Players are sorted by player and by reporting instance.
	Players []Presence
}

// Player is the merged location of a player.
type Player struct {
	ID   PlayerID
	Name string
	// Server is the instance the player is on, Proxy the proxy the player is connected through.
	// Either may be empty.
	Server, Proxy fleet.InstanceID
	// Group is the reported group of the server. It may be empty.
	Group fleet.GroupName
	// Edition is the reported edition of the game, or else the one derived from the UUID.
	Edition string
	// Since is when the player connected.
	Since time.Time
}

// MergePresence merges the reports about one player from the instances that are alive. ok is false
// if there is no such report. The latest report decides on the server: one from a server, or one
// from a proxy that sent the player to a server.
func MergePresence(told []Presence, alive func(fleet.InstanceID) bool) (p Player, ok bool) {
	var server, proxy *Presence
	for n := range told {
		t := &told[n]
		if !alive(t.By) {
			continue
		}
		half := &server
		if t.Proxy {
			half = &proxy
		}
		if *half == nil || t.At.After((*half).At) {
			*half = t
		}
	}
	switch {
	case proxy == nil && server == nil:
		return Player{}, false
	case proxy == nil:
		return Player{ID: server.Player, Name: server.Name, Server: server.By, Group: server.Group, Edition: editionOf(server), Since: server.Since}, true
	}
	p = Player{ID: proxy.Player, Name: proxy.Name, Proxy: proxy.By, Edition: editionOf(proxy, server), Since: proxy.Since}
	switch {
	case proxy.On != "" && alive(proxy.On) && (server == nil || proxy.At.After(server.At)):
		p.Server, p.Group = proxy.On, proxy.Group
	case server != nil:
		p.Server, p.Group = server.By, server.Group
	}
	return p, true
}

// editionOf returns the first reported edition, or else the one derived from the player's UUID.
// told[0] must not be nil.
func editionOf(told ...*Presence) string {
	for _, t := range told {
		if t != nil && t.Edition != "" {
			return t.Edition
		}
	}
	return told[0].Player.Edition()
}
