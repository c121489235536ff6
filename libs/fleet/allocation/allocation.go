// Package allocation has the claims of clients on ready instances.
package allocation

import (
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// The bounds of claims.
const (
	// MaxClaims bounds the claims on one instance.
	MaxClaims = 1000
	// MaxBytes bounds the record of one instance; see Bytes.
	MaxBytes = 256 << 10
	// MaxNote bounds Claim.Note, in bytes.
	MaxNote = 256
	// MaxTTLSeconds bounds Claim.TTLSeconds: 7 days.
	MaxTTLSeconds = 7 * 24 * 3600
)

// Claims are all claims on one instance. Gateways write the record: each claim and each release
// compares it. It does not exist without a claim.
type Claims struct {
	record.Rev
	Instance fleet.InstanceID `json:"instance"`
	// Generation is the run of the instance that the claims are for. They do not count for another.
	Generation int64   `json:"generation"`
	Claims     []Claim `json:"claims"`
}

// Claim reserves slots of one instance, or all of it.
type Claim struct {
	// ID begins with the ID of the instance; see InstanceOf.
	ID string `json:"id"`
	// Slots is the number of players it reserves room for. 0 means the whole instance.
	Slots int       `json:"slots,omitempty"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	// TTLSeconds is how long after At the claim ends. 0 means when it is released or the run ends.
	TTLSeconds int `json:"ttlSeconds,omitempty"`
	// Note is a text of the client, such as the ID of a match.
	Note string `json:"note,omitempty"`
}

// NewID returns the ID of a claim on an instance. random must be unique among its claims.
func NewID(i fleet.InstanceID, random string) string { return string(i) + "-" + random }

// InstanceOf returns the instance in the ID of a claim. ok is false for another text.
func InstanceOf(id string) (i fleet.InstanceID, ok bool) {
	instance, rest, ok := strings.Cut(id, "-")
	return fleet.InstanceID(instance), ok && rest != "" && fleet.InstanceID(instance).Valid()
}

// Of returns the claims that count for an instance. c may be nil.
func (c *Claims) Of(i *fleet.Instance) []Claim {
	if c == nil || c.Generation != i.Intent.Generation || i.Terminal() {
		return nil
	}
	return c.Claims
}

// Whole reports whether one claim takes the whole instance.
func (c *Claims) Whole(i *fleet.Instance) bool {
	return slices.ContainsFunc(c.Of(i), func(claim Claim) bool { return claim.Slots == 0 })
}

// claimBytes is the most that the fields of a claim but its texts take in JSON.
const claimBytes = 256

// Bytes returns an upper bound for the size of the record. c may be nil.
func (c *Claims) Bytes() int {
	if c == nil {
		return claimBytes
	}
	n := claimBytes
	for _, claim := range c.Claims {
		n += claim.bytes()
	}
	return n
}

// bytes counts six bytes for each byte of a text, because JSON may have to escape it.
func (c Claim) bytes() int { return claimBytes + 6*(len(c.Note)+len(c.By)) }

// Takes reports whether the record has room for another claim. c may be nil.
func (c *Claims) Takes(claim Claim) bool {
	return c == nil || len(c.Claims) < MaxClaims && c.Bytes()+claim.bytes() <= MaxBytes
}

// Slots returns how many slots of an instance are claimed. A claim on the whole instance takes all
// of them: capacity, or 1 if that is 0 (unknown).
func (c *Claims) Slots(i *fleet.Instance, capacity int) (n int) {
	for _, claim := range c.Of(i) {
		if claim.Slots == 0 {
			return max(1, capacity)
		}
		n += claim.Slots
	}
	return n
}
