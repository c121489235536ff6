// Package sleep has the rules by which the empty instances of a group sleep and wake.
package sleep

import (
	"cmp"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// MaxMotd bounds Rules.Motd, in bytes.
const MaxMotd = 256

// DefaultMotd is what a sleeping instance answers to status pings if its group names no text.
const DefaultMotd = "asleep, join to wake"

// Rules are the settings of a group. The zero value lets no instance sleep by itself. An instance
// that a user puts to sleep then wakes by a join.
type Rules struct {
	// AfterEmptySeconds is how long an instance has no players before it is put to sleep. 0 means
	// never.
	AfterEmptySeconds int `json:"afterEmptySeconds,omitempty"`
	// WakeOn says which packets on its port wake a sleeping instance. Empty means WakeOnJoin.
	WakeOn WakeOn `json:"wakeOn,omitempty"`
	// Motd is the text in the server list while an instance sleeps. Empty means DefaultMotd.
	Motd string `json:"motd,omitempty"`
}

// WakeOn says which packets from the network wake an instance.
type WakeOn string

// The values of WakeOn.
const (
	WakeOnJoin    WakeOn = "join"    // a player who joins
	WakeOnConnect WakeOn = "connect" // each connection that sends something, such as a status ping
	WakeOff       WakeOn = "off"     // none: the port is closed
)

// Wakes returns the WakeOn in force.
func (r Rules) Wakes() WakeOn { return cmp.Or(r.WakeOn, WakeOnJoin) }

// Text returns the Motd in force.
func (r Rules) Text() string { return cmp.Or(r.Motd, DefaultMotd) }

// Stored returns the rules as records store them: without the values that are the defaults.
func (r Rules) Stored() Rules {
	if r.WakeOn == WakeOnJoin {
		r.WakeOn = ""
	}
	if r.Motd == DefaultMotd {
		r.Motd = ""
	}
	return r
}

// WokenBy says what wakes an instance, in a sentence.
func (r Rules) WokenBy() string {
	users := "an allocation, a transfer or a user wakes it (orrery wake)"
	switch r.Wakes() {
	case WakeOnJoin:
		return "a player who joins, " + users
	case WakeOnConnect:
		return "a connection to its port, " + users
	case WakeOff:
	}
	return users
}

// Validate returns everything that is wrong, as Invalid errors that name the fields of the API.
func (r Rules) Validate() []error {
	var p validate.Problems
	p.Seconds("sleepAfterEmptySeconds", r.AfterEmptySeconds)
	p.Check(validate.OneOf(r.WakeOn, "", WakeOnJoin, WakeOnConnect, WakeOff), "wakeOn", "must be join, connect or off, not %q", validate.Clip(string(r.WakeOn)))
	p.Lines("sleepMotd", r.Motd, MaxMotd)
	return p.List
}

// Call says what on the network asks a sleeping instance to wake.
type Call struct {
	// Join is true for a player who joins, and false for another connection.
	Join bool `json:"join,omitempty"`
	// Player is the name that the player gave. It is unverified, and empty if unknown.
	Player string    `json:"player,omitempty"`
	At     time.Time `json:"at"`
}
