package players_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/players"
)

func TestTransferIsRetriedUntilItExpires(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := players.Transfer{At: at}
	sent := players.Transfer{At: at, AckedAt: at.Add(time.Minute)}
	for name, tc := range map[string]struct {
		transfer      players.Transfer
		after         time.Duration
		pending, over bool
	}{
		"at once":                    {asked, 0, true, false},
		"sent, and on the way":       {sent, time.Minute + players.TransferGrace - time.Second, false, false},
		"sent, and not come":         {sent, time.Minute + players.TransferGrace, true, false},
		"never sent, and given up":   {asked, players.TransferLife, false, true},
		"sent in vain, and given up": {sent, players.TransferLife, false, true},
	} {
		if now := at.Add(tc.after); tc.transfer.Pending(now) != tc.pending || tc.transfer.Over(now) != tc.over {
			t.Errorf("%s: pending %v, over %v", name, tc.transfer.Pending(now), tc.transfer.Over(now))
		}
	}
}
