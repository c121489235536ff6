package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
)

// MomentOf builds a Moment from a snapshot alone.
func MomentOf(snap *view.Snapshot, now time.Time) *facts.Moment {
	s := newState(0)
	s.rebuild(snap, now, false)
	return &facts.Moment{Snap: snap, Model: s.model, At: now, Nominated: s.nominated}
}
