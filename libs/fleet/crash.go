package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// CrashHistory is the number of earlier crashes stored in an intent.
const CrashHistory = 8

// EndedUnasked reports whether the wanted generation ended although it should run.
func (i *Instance) EndedUnasked() bool {
	s := i.current()
	return i.Intent.Desired == DesiredRunning && s != nil && s.State.Terminal()
}

// EndedByPlatform reports whether Orrery or the host, not the instance itself, ended the wanted
// generation: the node could not renew its session in time, could not run a guard for the
// instance, or rebooted.
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

// Unrunnable reports whether the wanted generation ended because its command does not exist or is
// not executable.
func (i *Instance) Unrunnable() bool {
	return i.EndedUnasked() && (i.current().Reason == ReasonCommandMissing || i.current().Reason == ReasonNotExecutable)
}

// CrashedAt returns when the wanted generation crashed or failed to start because of its group. ok
// is false if it did not, or if something outside the group's spec was missing: a template, an
// artifact, an image, a secret, disk space, or a runtime on the node.
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

// FailedAt returns when the wanted generation ended unasked. ok is false if it did not, or if the
// cause was outside the instance and its setup: a lost, rebooted or disconnected node, a stop on
// the node itself, the end of its lifetime, or a foreign program on its port (that port is avoided
// from then on). The time is never before the request for the generation, even if the node's clock
// is behind.
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

// Crashes returns the times of the instance's latest crashes, oldest first: those stored in its
// intent, then those of the wanted generation. If the node's clock was set back, earlier crashes
// are moved to the time of the last one.
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

// CrashesOf returns Crashes if the instance was made from that revision of its group. Otherwise it
// returns nil, because the given revision may fix the crashes.
func (i *Instance) CrashesOf(revision int64) []time.Time {
	if i.Intent.GroupRevision != revision {
		return nil
	}
	return i.Crashes()
}

// CrashLoop is a group's pause after repeated crashes. The enforcer starts nothing until it ends.
// The enforcer writes it and removes it after a time without crashes.
type CrashLoop struct {
	record.Rev
	Group GroupName `json:"group"`
	// GroupRevision is the spec revision that crashed. A newer revision ends the pause.
	GroupRevision int64 `json:"groupRevision"`
	// Ancestors are the spec revisions of the group's ancestors when the pause began. A change of
	// one of them ends the pause. It is nil without ancestors.
	Ancestors map[GroupName]int64 `json:"ancestors,omitempty"`
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
func (l *CrashLoop) Text(until time.Time) string {
	text := fmt.Sprintf("paused after %d crashes since %s", l.Crashes, l.Since.UTC().Format(time.RFC3339))
	for _, more := range []string{l.Blame.Because, l.Last} {
		if more != "" {
			text += "; " + more
		}
	}
	return text + fmt.Sprintf("; GET /api/v1/crashes?group=%s shows their last lines; no instance starts automatically until %s; to end the pause, change the group or send POST /api/v1/groups/%s/crash-loop/reset",
		l.Group, until.UTC().Format(time.RFC3339), l.Group)
}

// ResetBy reports whether a user has reset the pause.
func (l *CrashLoop) ResetBy(g *Group) bool { return g.CrashesResetAt.After(l.Since) }

// EndsAt returns when the pause ends: at PausedUntil, or earlier if a user reset it or changed the
// spec of the group or of an ancestor, since that may fix the crashes. It detects changes by
// revision because clocks of gateways and nodes differ.
func (l *CrashLoop) EndsAt(g *Group, ancestors []*Group) time.Time {
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
	Node NodeID `json:"node,omitempty"`
	// Fingerprint is set when the suspect is a revision.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Because explains the suspect: a sentence without capital and period. Empty without a
	// suspect.
	Because string `json:"because,omitempty"`
}
