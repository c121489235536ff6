package fleet

import "time"

const (
	// MaxTransfers bounds the transfers that are pending at a time.
	MaxTransfers = 10_000
	// TransferLife is for how long a transfer is tried.
	TransferLife = 10 * time.Minute
	// TransferGrace is how long a player may be on the way, once a proxy has said that it
	// sent the player there. Who has not come by then is sent again.
	TransferGrace = 30 * time.Second
)

// Transfer is the wish to have a player on another instance, for the proxy the player came
// through. A player has one at most: the newest counts. Gateways write it, and remove it
// when the player is there, or its life is over.
type Transfer struct {
	Rev
	Player PlayerID `json:"player"`
	// Target is the instance, By who asked, and At when.
	Target InstanceID `json:"target"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	// AckedAt is when a proxy said that it has sent the player there; zero before.
	AckedAt time.Time `json:"ackedAt,omitzero"`
}

// Over reports whether it is not tried any more.
func (t Transfer) Over(now time.Time) bool { return !now.Before(t.At.Add(TransferLife)) }

// Pending reports whether a proxy is to carry it out.
func (t Transfer) Pending(now time.Time) bool {
	return !t.Over(now) && (t.AckedAt.IsZero() || !now.Before(t.AckedAt.Add(TransferGrace)))
}
