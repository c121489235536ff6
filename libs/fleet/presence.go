package fleet

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// PlayerID is a player's UUID, in lower case and with its dashes.
type PlayerID string

var playerIDPattern = regexp.MustCompile(`^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)

// ParsePlayerID reads a UUID, in any case, with its dashes or without any. Malformed when it is none.
func ParsePlayerID(text string) (PlayerID, error) {
	lower := strings.ToLower(text)
	bare := strings.ReplaceAll(lower, "-", "")
	dashes := len(lower) - len(bare)
	if !playerIDPattern.MatchString(lower) || dashes != 0 && dashes != 4 {
		return "", &errs.Error{Kind: errs.Malformed, Field: "uuid", Message: "must be a UUID like 069a79f4-44e9-4726-a5be-fca90e38aaf5; it is " + quoted(text)}
	}
	return PlayerID(bare[:8] + "-" + bare[8:12] + "-" + bare[12:16] + "-" + bare[16:20] + "-" + bare[20:]), nil
}

func quoted(s string) string { return strconv.Quote(clip(s)) }

// PresenceParts is in how many records a node's players stand: one that joins or leaves
// has one of them written anew, and not all.
const PresenceParts = 64

// Bounds of what is known of players.
const (
	// MaxPresencePart is how many a part holds.
	MaxPresencePart = 1000
	// MaxPlayerName and MaxEdition are lengths, in bytes.
	MaxPlayerName = 64
	MaxEdition    = 16
)

// Part is the part of a node's players that the player belongs to, from 0 to
// PresenceParts-1: the same on all nodes.
func (p PlayerID) Part() int { return int(hash(string(p)) % PresenceParts) }

// Editions of the game, in the words of PrexorCloud's clients.
const (
	EditionJava    = "java"
	EditionBedrock = "bedrock"
)

// bedrockPrefix begins the UUIDs that Floodgate gives players of Bedrock Edition: the high
// half is zero, the low half is the player's XUID.
const bedrockPrefix = "00000000-0000-0000-"

// Edition is the edition of the game that the player's UUID tells. A player of Bedrock Edition
// who is linked to a Java account, or came without Floodgate, has a UUID of Java Edition.
func (p PlayerID) Edition() string {
	if strings.HasPrefix(string(p), bedrockPrefix) {
		return EditionBedrock
	}
	return EditionJava
}

// Presence is what one instance tells of a player who is there: a server of who plays on
// it, a proxy of who is connected through it.
type Presence struct {
	Player PlayerID `json:"uuid"`
	Name   string   `json:"name"`
	// By is the instance that tells it; Proxy is true when that is a proxy.
	By    InstanceID `json:"by"`
	Proxy bool       `json:"proxy,omitempty"`
	// On is the instance that a proxy has sent the player to; empty when it does not say.
	On InstanceID `json:"on,omitempty"`
	// Group is the group that was told with it; empty when none was.
	Group GroupName `json:"group,omitempty"`
	// Edition is that of the game, as a proxy says; empty when it does not.
	Edition string `json:"edition,omitempty"`
	// Since is when By first told of the player, At when it did last, by its node's clock.
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
	// Said is the number of the call that told it last; 0 is none.
	Said int64 `json:"said,omitempty"`
}

// Validate refuses what no instance can tell. Invalid names the field.
func (p Presence) Validate() error {
	if id, err := ParsePlayerID(string(p.Player)); err != nil || id != p.Player {
		return errs.Field("uuid", "must be a UUID in lower case with its dashes; it is %s", quoted(string(p.Player)))
	}
	if p.Name == "" || len(p.Name) > MaxPlayerName || HasControl(p.Name) || !utf8.ValidString(p.Name) {
		return errs.Field("name", "must be 1 to %d bytes without control characters; it is %s", MaxPlayerName, quoted(p.Name))
	}
	if len(p.Edition) > MaxEdition || HasControl(p.Edition) || !utf8.ValidString(p.Edition) {
		return errs.Field("edition", "must be at most %d bytes without control characters; it is %s", MaxEdition, quoted(p.Edition))
	}
	if p.On != "" && !p.On.Valid() {
		return errs.Field("on", "must be an instance's id; it is %s", quoted(string(p.On)))
	}
	if p.Group != "" && p.Group.Validate() != nil {
		return errs.Field("group", "must be the name of a group; it is %s", quoted(string(p.Group)))
	}
	return nil
}

// PresencePart is a part of the players of a node. The node's agent writes it, with its
// report; its key goes with the part's last player.
type PresencePart struct {
	Rev
	// Part is its number, from 0 to PresenceParts-1.
	Part int
	// Players are in order of player and of who tells of them.
	Players []Presence
}

// Player is where a player is, after all that is told of that.
type Player struct {
	ID   PlayerID
	Name string
	// Server is where the player plays, and Proxy what the player came through; empty when
	// nobody knows.
	Server, Proxy InstanceID
	// Group is what was told of the server's group; empty when nothing was.
	Group GroupName
	// Edition is what was told of the game's edition, else what the UUID tells.
	Edition string
	// Since is since when the player is connected.
	Since time.Time
}

// MergePresence is where a player is by all that instances tell; ok is false when none does
// that lives, which alive says. The latest word counts: that of a server, or what a
// proxy says of where it has sent the player.
func MergePresence(told []Presence, alive func(InstanceID) bool) (p Player, ok bool) {
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

// editionOf is the first edition that somebody tells, else the one of the player's UUID; told
// begins with one that is not nil.
func editionOf(told ...*Presence) string {
	for _, t := range told {
		if t != nil && t.Edition != "" {
			return t.Edition
		}
	}
	return told[0].Player.Edition()
}
