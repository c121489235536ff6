package players

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
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

// ParseRecord decodes what MarshalJSON writes, without escaped characters. It returns false for any other text.
// A fleet has one of these records for every few players, and a gateway reads all of them at its start:
// this takes a seventh of the time of UnmarshalJSON (BenchmarkPresenceRecord).
func (p *PresencePart) ParseRecord(b []byte) bool {
	r := record.Reader{Rest: string(b), Plain: true}
	var out PresencePart
	separator := "{"
	if r.Found(`{"part":`) {
		out.Part, separator = int(r.Number("")), ","
	}
	r.Raw(separator + `"told":[`)
	for next := "["; r.Plain && !r.Found("]"); next = ",[" {
		id, err := longID(r.Text(next))
		player := Presence{Player: id, Name: r.Own(","), By: fleet.InstanceID(r.Own(","))}
		since := r.Number(",")
		at := since + r.Number(",")
		player.Said = r.Number(",")
		player.Since, player.At = time.UnixMicro(since).UTC(), time.UnixMicro(at).UTC()
		if r.Found(",1") || r.Found(",0") {
			return false // of a proxy, which is left to UnmarshalJSON
		}
		if r.Raw("]"); err != nil {
			return false
		}
		out.Players = append(out.Players, player)
	}
	if r.Raw("}"); !r.Plain || r.Rest != "" {
		return false
	}
	*p = out
	return true
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
	h := hex.EncodeToString(b)
	return PlayerID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]), nil
}
