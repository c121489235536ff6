package players

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// presenceRecord is the stored form of a PresencePart. Older agents wrote Players.
type presenceRecord struct {
	Part    int               `json:"part,omitempty"`
	Players []Presence        `json:"players,omitempty"`
	Told    []presenceElement `json:"told,omitempty"`
}

// presenceElement is a Presence stored as an array without field names.
type presenceElement Presence

// MarshalJSON encodes the part with one array per player.
func (p PresencePart) MarshalJSON() ([]byte, error) {
	r := presenceRecord{Part: p.Part, Told: make([]presenceElement, len(p.Players))}
	for n, player := range p.Players {
		r.Told[n] = presenceElement(player)
	}
	return json.Marshal(r)
}

// UnmarshalJSON decodes what MarshalJSON writes, and the objects of older agents.
func (p *PresencePart) UnmarshalJSON(b []byte) error {
	var r presenceRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	p.Part, p.Players = r.Part, r.Players
	for _, player := range r.Told {
		p.Players = append(p.Players, Presence(player))
	}
	return nil
}

// MarshalJSON encodes an array: UUID in base64, name, reporting instance, since in microseconds,
// the microseconds from since to at, and the number of the call. For a proxy the array continues
// with 1, the instance the player is on, group and edition. Empty values at the end of the array
// are omitted.
func (p presenceElement) MarshalJSON() ([]byte, error) {
	id, err := shortID(p.Player)
	if err != nil {
		return nil, err
	}
	proxy := 0
	if p.Proxy {
		proxy = 1
	}
	since := p.Since.UnixMicro()
	a := []any{id, p.Name, p.By, since, p.At.UnixMicro() - since, p.Said, proxy, p.On, p.Group, p.Edition}
	switch {
	case p.Edition != "":
	case p.Group != "":
		a = a[:9]
	case p.On != "":
		a = a[:8]
	case p.Proxy:
		a = a[:7]
	default:
		a = a[:6]
	}
	return json.Marshal(a)
}

// UnmarshalJSON decodes what MarshalJSON writes. It ignores further elements.
func (p *presenceElement) UnmarshalJSON(b []byte) error {
	var id string
	var since, after int64
	var proxy int
	into := [...]any{&id, &p.Name, &p.By, &since, &after, &p.Said, &proxy, &p.On, &p.Group, &p.Edition}
	var a []json.RawMessage
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	for n := range min(len(a), len(into)) {
		if err := json.Unmarshal(a[n], into[n]); err != nil {
			return err
		}
	}
	var err error
	p.Player, err = longID(id)
	p.Since, p.At, p.Proxy = time.UnixMicro(since).UTC(), time.UnixMicro(since+after).UTC(), proxy != 0
	return err
}

// shortID returns a UUID as 22 characters of base64.
func shortID(id PlayerID) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(string(id), "-", ""))
	if err != nil || len(b) != 16 {
		return "", fmt.Errorf("player %q is not a UUID", id)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

func longID(short string) (PlayerID, error) {
	b, err := base64.RawURLEncoding.DecodeString(short)
	if err != nil || len(b) != 16 {
		return "", fmt.Errorf("player %q is not a UUID in base64", short)
	}
	return ParsePlayerID(hex.EncodeToString(b))
}
