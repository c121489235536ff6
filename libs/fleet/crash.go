package fleet

import (
	"slices"
	"time"
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
// artifact, an image, a secret, disk space, or a runtime, an id or a setting of the node.
func (i *Instance) CrashedAt() (at time.Time, ok bool) {
	at, ok = i.FailedAt()
	if !ok {
		return at, false
	}
	switch i.Status.Reason {
	case ReasonTemplateMissing, ReasonTemplateFetch, ReasonArtifactFetch, ReasonImageFetch, ReasonSecretMissing, ReasonDiskFull, ReasonRuntimeMissing, ReasonNodePolicy, ReasonNoInstanceUser:
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
