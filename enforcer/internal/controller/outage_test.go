package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// A loss begins when its news is heard: what was waited for an earlier one, whose end
// nobody heard of, does not count.
func TestAnEarlierLossDoesNotCountForALaterOne(t *testing.T) {
	w := newWorld(t)
	w.lose()
	gone := w.view.Snapshot()
	start := time.Now()
	later := *gone
	later.Rev += 10
	went := view.Change{Kind: view.KindSession, Key: []string{"node", string(node)}, Rev: gone.Rev, Before: &fleet.NodeSession{}}

	tests := []struct {
		rule  string
		batch *view.Batch // what is heard ten minutes after the first loss
		at    *view.Snapshot
		want  time.Duration
	}{
		{"a loss that lasts began when it was heard of", nil, gone, 0},
		{"other news change nothing", &view.Batch{After: &later}, &later, 0},
		{"after a relist nobody knows what was missed", &view.Batch{After: &later, Relisted: true}, &later, 10 * time.Minute},
		{"a return and a loss in one batch are a new loss", &view.Batch{After: &later, Changes: []view.Change{
			{Kind: view.KindSession, Key: went.Key, Rev: gone.Rev + 5, After: &fleet.NodeSession{}}, went,
		}}, &later, 10 * time.Minute},
		{"a snapshot whose news has not been heard yet is not trusted", nil, &later, 10 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			o := newOutages()
			o.heard(&view.Batch{After: gone, Changes: []view.Change{went}}, start)
			now := start.Add(10 * time.Minute)
			if tt.batch != nil {
				o.heard(tt.batch, now)
			}
			if got := o.of(tt.at, node, now).Sub(start); got != tt.want {
				t.Errorf("the loss began %v after the first, want %v", got, tt.want)
			}
		})
	}
}
