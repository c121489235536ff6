package players

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

const (
	// MaxTransfers bounds the pending transfers.
	MaxTransfers = 10_000
	// TransferLife is how long a transfer is attempted.
	TransferLife = 10 * time.Minute
	// TransferGrace is how long a player may take to arrive after a proxy confirmed the transfer.
	// After that the player is sent again.
	TransferGrace = 30 * time.Second
)

// Transfer requests that the player's proxy sends the player to another instance. A player has at
// most one; the newest counts. Gateways write it, and remove it when the player has arrived or
// TransferLife is over.
type Transfer struct {
	record.Rev
	Player PlayerID `json:"player"`
	// Target is the instance. By is the requester, At the time of the request.
	Target fleet.InstanceID `json:"target"`
	By     string           `json:"by"`
	At     time.Time        `json:"at"`
	// AckedAt is when a proxy confirmed that it sent the player. Zero before that.
	AckedAt time.Time `json:"ackedAt,omitzero"`
}

// Over reports whether the transfer is no longer attempted.
func (t Transfer) Over(now time.Time) bool { return !now.Before(t.At.Add(TransferLife)) }

// Pending reports whether a proxy should carry out the transfer now.
func (t Transfer) Pending(now time.Time) bool {
	return !t.Over(now) && (t.AckedAt.IsZero() || !now.Before(t.AckedAt.Add(TransferGrace)))
}
