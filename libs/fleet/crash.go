package fleet

import (
	"fmt"
	"slices"
	"time"
)

// CrashHistory is the number of earlier crashes an intent remembers.
const CrashHistory = 8

// EndedUnasked reports whether the wanted generation has ended although it was to run.
func (i *Instance) EndedUnasked() bool {
	s := i.current()
	return i.Intent.Desired == DesiredRunning && s != nil && s.State.Terminal()
}

// EndedByPlatform reports whether Orrery or the host, rather than the instance itself,
// ended the wanted generation: its node could not renew its session in time, had no
// guard for it, or was rebooted.
func (i *Instance) EndedByPlatform() bool {
	if !i.EndedUnasked() {
		return false
	}
	switch i.current().Reason {
	case ReasonSessionExpiring, ReasonGuardFailed, ReasonNodeRebooted:
		return true
	}
	return false
}

// Unrunnable reports whether the wanted generation ended because its command does not exist
// or cannot be executed.
func (i *Instance) Unrunnable() bool {
	return i.EndedUnasked() && (i.current().Reason == ReasonCommandMissing || i.current().Reason == ReasonNotExecutable)
}

// CrashedAt is when the wanted generation crashed or could not be started, its group
// being at fault. ok is false when it did not, or when that was for want of something
// the group's spec does not bring: a template that does not exist or that nobody serves
// now, a secret that cannot be had, room on a disk, a runtime that the node offers.
func (i *Instance) CrashedAt() (at time.Time, ok bool) {
	at, ok = i.FailedAt()
	if !ok {
		return at, false
	}
	switch i.Status.Reason {
	case ReasonTemplateMissing, ReasonTemplateFetch, ReasonArtifactFetch, ReasonImageFetch, ReasonSecretMissing, ReasonDiskFull, ReasonRuntimeMissing:
		return time.Time{}, false
	}
	return at, true
}

// FailedAt is when the wanted generation ended unasked. ok is false when it has
// not, or when neither it nor its node was the cause: a lost, restarted
// or cut off node, somebody who stopped it there, its time being over, or a stranger on its port, which is avoided
// from then on. A host whose clock is behind cannot date a failure before the
// generation was asked for.
func (i *Instance) FailedAt() (at time.Time, ok bool) {
	if !i.EndedUnasked() || i.Intent.Displaced {
		return time.Time{}, false
	}
	switch i.Status.Reason {
	case ReasonNodeLost, ReasonNodeDeleted, ReasonNodeRebooted, ReasonAgentShutdown, ReasonStoppedLocally, ReasonPortTaken, ReasonSessionExpiring, ReasonLifetimeOver:
		return time.Time{}, false
	}
	return i.FinishedAt(), true
}

// Crashes are the times of the instance's latest crashes, oldest first: those
// its intent remembers and those of the wanted generation that ended it. A host whose
// clock was set back cannot date an earlier crash after the last one.
func (i *Instance) Crashes() []time.Time {
	all := slices.Clone(i.Intent.Crashes)
	if at, ok := i.CrashedAt(); ok {
		for _, before := range i.Status.Crashes {
			all = append(all, earliest(before, at))
		}
		all = append(all, at)
	}
	return all[max(0, len(all)-CrashHistory):]
}

// CrashesOf are the instance's Crashes if they were of a revision of its group; nil if they
// were of another, whose cure that one may be.
func (i *Instance) CrashesOf(revision int64) []time.Time {
	if i.Intent.GroupRevision != revision {
		return nil
	}
	return i.Crashes()
}

// CrashLoop is a group's pause after repeated crashes: until it ends the
// enforcer starts nothing. Written by the enforcer, removed after a quiet time.
type CrashLoop struct {
	Rev
	Group GroupName `json:"group"`
	// GroupRevision is the spec revision that crashed: a newer one ends the pause.
	GroupRevision int64 `json:"groupRevision"`
	// Ancestors are the spec revisions of the group's ancestors when the pause began: another
	// of one of them ends it. nil: there were none.
	Ancestors map[GroupName]int64 `json:"ancestors,omitempty"`
	// Level counts consecutive pauses, from 1; each doubles the pause.
	Level int `json:"level"`
	// Since is the first crash of the window that led to the pause.
	Since   time.Time `json:"since"`
	Crashes int       `json:"crashes"`
	// PausedAt is when the pause began: no crash that led to it counts as later.
	PausedAt    time.Time `json:"pausedAt,omitzero"`
	PausedUntil time.Time `json:"pausedUntil"`
	// Blame is what the crashes had in common.
	Blame Blame `json:"blame,omitzero"`
	// Last says which instance crashed last, and how.
	Last string `json:"last,omitempty"`
}

// Text says why the group is paused, until when, and how to end the pause. until is EndsAt's.
func (l *CrashLoop) Text(until time.Time) string {
	text := fmt.Sprintf("paused after %d crashes since %s", l.Crashes, l.Since.UTC().Format(time.RFC3339))
	for _, more := range []string{l.Blame.Because, l.Last} {
		if more != "" {
			text += "; " + more
		}
	}
	return text + fmt.Sprintf("; GET /api/v1/crashes?group=%s has their last lines; nothing is started by itself until %s: to end the pause, change the group or send POST /api/v1/groups/%s/crash-loop/reset",
		l.Group, until.UTC().Format(time.RFC3339), l.Group)
}

// ResetBy reports whether somebody has reset the pause since it began.
func (l *CrashLoop) ResetBy(g *Group) bool { return g.CrashesResetAt.After(l.Since) }

// EndsAt is when the pause ends: at PausedUntil, or when somebody reset it, or the
// group's spec or that of one of its ancestors was changed in it, since the change may
// be the cure. What was changed is told by revisions: clocks of gateways and nodes differ.
func (l *CrashLoop) EndsAt(g *Group, ancestors []*Group) time.Time {
	if l.ResetBy(g) && g.CrashesResetAt.Before(l.PausedUntil) {
		return g.CrashesResetAt
	}
	if g.Revision > l.GroupRevision && g.UpdatedAt.Before(l.PausedUntil) {
		return g.UpdatedAt
	}
	var changed time.Time
	for _, a := range ancestors { // a parent's change moves no revision of the group
		if paused, known := l.Ancestors[a.Name]; known && paused != a.Revision {
			changed = slices.MaxFunc([]time.Time{changed, a.UpdatedAt, l.PausedAt}, time.Time.Compare)
		}
	}
	if !changed.IsZero() && changed.Before(l.PausedUntil) {
		return changed
	}
	return l.PausedUntil
}
