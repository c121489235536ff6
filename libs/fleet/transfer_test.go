package fleet_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestATransferIsTriedAgainUntilItsLifeIsOver(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := fleet.Transfer{At: at}
	sent := fleet.Transfer{At: at, AckedAt: at.Add(time.Minute)}
	for name, tc := range map[string]struct {
		transfer      fleet.Transfer
		after         time.Duration
		pending, over bool
	}{
		"at once":                    {asked, 0, true, false},
		"sent, and on the way":       {sent, time.Minute + fleet.TransferGrace - time.Second, false, false},
		"sent, and not come":         {sent, time.Minute + fleet.TransferGrace, true, false},
		"never sent, and given up":   {asked, fleet.TransferLife, false, true},
		"sent in vain, and given up": {sent, fleet.TransferLife, false, true},
	} {
		if now := at.Add(tc.after); tc.transfer.Pending(now) != tc.pending || tc.transfer.Over(now) != tc.over {
			t.Errorf("%s: pending %v, over %v", name, tc.transfer.Pending(now), tc.transfer.Over(now))
		}
	}
}
