// Package crashloop has the pause of a group after repeated crashes, and the likely cause of the
// crashes.
package crashloop

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Loop is a group's pause after repeated crashes. The enforcer starts nothing until it ends.
// The enforcer writes it and removes it after a time without crashes.
type Loop struct {
	record.Rev
	Group fleet.GroupName `json:"group"`
	// GroupRevision is the spec revision that crashed. A newer revision ends the pause.
	GroupRevision int64 `json:"groupRevision"`
	// Ancestors are the spec revisions of the group's ancestors when the pause began. A change of
	// one of them ends the pause. It is nil without ancestors.
	Ancestors map[fleet.GroupName]int64 `json:"ancestors,omitempty"`
	// Level counts consecutive pauses from 1. Each pause is twice as long as the one before.
	Level int `json:"level"`
	// Since is the first crash of the window that led to the pause.
	Since   time.Time `json:"since"`
	Crashes int       `json:"crashes"`
	// PausedAt is when the pause began. Crashes that led to it are not later than this.
	PausedAt    time.Time `json:"pausedAt,omitzero"`
	PausedUntil time.Time `json:"pausedUntil"`
	// Blame names the common cause of the crashes.
	Blame Blame `json:"blame,omitzero"`
	// Last describes the last crash: its instance and its cause.
	Last string `json:"last,omitempty"`
}

// Text says why the group is paused, until when, and how to end the pause. Pass the result of
// EndsAt as until.
func (l *Loop) Text(until time.Time) string {
	text := fmt.Sprintf("paused after %d crashes since %s", l.Crashes, l.Since.UTC().Format(time.RFC3339))
	for _, more := range []string{l.Blame.Because, l.Last} {
		if more != "" {
			text += "; " + more
		}
	}
	return text + fmt.Sprintf("; to see their last lines: orrery get crashes --group %s; no instance starts automatically until %s; to end the pause, change the group, or reset it: orrery crash reset %s",
		l.Group, until.UTC().Format(time.RFC3339), l.Group)
}

// ResetBy reports whether a user has reset the pause.
func (l *Loop) ResetBy(g *fleet.Group) bool { return g.CrashesResetAt.After(l.Since) }

// EndsAt returns when the pause ends: at PausedUntil, or earlier if a user reset it or changed the
// spec of the group or of an ancestor, since that may fix the crashes. It detects changes by
// revision because clocks of gateways and nodes differ.
func (l *Loop) EndsAt(g *fleet.Group, ancestors []*fleet.Group) time.Time {
	if l.ResetBy(g) && g.CrashesResetAt.Before(l.PausedUntil) {
		return g.CrashesResetAt
	}
	if g.Revision > l.GroupRevision && g.UpdatedAt.Before(l.PausedUntil) {
		return g.UpdatedAt
	}
	var changed time.Time
	for _, a := range ancestors { // a change of a parent does not change the group's revision
		if paused, known := l.Ancestors[a.Name]; known && paused != a.Revision {
			changed = slices.MaxFunc([]time.Time{changed, a.UpdatedAt, l.PausedAt}, time.Time.Compare)
		}
	}
	if !changed.IsZero() && changed.Before(l.PausedUntil) {
		return changed
	}
	return l.PausedUntil
}

// Suspect is the likely cause of a group's crashes.
type Suspect string

// Blame is the likely common cause of crashes. The zero value means that no cause was found.
type Blame struct {
	Suspect Suspect `json:"suspect,omitempty"`
	// Node is set when the suspect is a node.
	Node fleet.NodeID `json:"node,omitempty"`
	// Fingerprint is set when the suspect is a revision.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Because explains the suspect: a sentence without capital and period. Empty without a
	// suspect.
	Because string `json:"because,omitempty"`
}
