package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/store/view"
)

// MomentOf builds a Moment from a snapshot alone.
func MomentOf(snap *view.Snapshot, now time.Time) *Moment {
	s := newState(0)
	s.rebuild(snap, now, false)
	return &Moment{Snap: snap, Model: s.model, At: now, kept: s.kept}
}
