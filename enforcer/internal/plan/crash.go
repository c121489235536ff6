package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
)

// gate returns the time from which the group may start instances. When the crash limit is
// reached, it also returns the action that pauses the group.
func (p *pass) gate() (ready time.Time, pause *Action) {
	from := p.now.Add(-p.in.Limits.CrashWindow)
	if loop := p.in.CrashLoop; loop != nil {
		end := loop.EndsAt(p.group(), p.in.Ancestors)
		if end.After(p.now) {
			return end, nil
		}
		from = latest(from, end)
	}
	for _, a := range p.in.Ancestors { // a parent's change may be the fix, and does not change the group's revision
		if !a.UpdatedAt.After(p.now) { // a clock that is ahead must not hide crashes
			from = latest(from, a.UpdatedAt)
		}
	}
	crashes := p.crashesAfter(latest(from, p.group().CrashesResetAt))
	if len(crashes) == 0 {
		return p.setback(), nil
	}
	if len(crashes) >= p.in.Limits.CrashLimit {
		if b := p.blame(crashes[0].Add(-blameSlack)); len(crashes) >= p.tolerance(b) {
			loop := p.nextLoop(crashes)
			loop.Blame = b
			return loop.PausedUntil, &Action{Kind: SetCrashLoop, Loop: loop, Reason: fleet.ReasonCrashLoop, Message: loop.Text(loop.PausedUntil)}
		}
	}
	last := crashes[len(crashes)-1]
	return latest(last.Add(p.in.Limits.backoff(len(crashes))), p.setback()), nil
}

// maxLast bounds the text about the last crash, in bytes.
const maxLast = 300

// lastCrash describes the last crash.
func (p *pass) lastCrash() string {
	var last *fleet.Instance
	var latest time.Time
	for _, i := range p.every {
		if at, ok := i.CrashedAt(); ok && i.Intent.GroupRevision == p.group().Revision && (last == nil || at.After(latest)) {
			last, latest = i, at
		}
	}
	if last == nil {
		return ""
	}
	_, how := last.Why()
	if len(how) > maxLast {
		how = strings.ToValidUTF8(how[:maxLast], "") + "…"
	}
	return fmt.Sprintf("the last was %s on %s: %s", last.Intent.Name, last.Status.Node, how)
}

// setback returns the end of the delay after failures that are not crashes of the group,
// such as a missing template or a full disk.
func (p *pass) setback() (until time.Time) {
	for _, i := range p.every {
		at, failed := i.FailedAt()
		if _, crashed := i.CrashedAt(); !failed || crashed || !at.After(p.group().CrashesResetAt) {
			continue
		}
		if at.After(p.now) {
			at = p.now
		}
		until = latest(until, at.Add(p.in.Limits.SetbackFor))
	}
	return until
}

// crashesAfter returns the crashes of the group's current revision after a time, oldest
// first. Crashes of other revisions do not count, because a new one may be the fix. Times
// in the future, from a wrong clock, count as now.
func (p *pass) crashesAfter(from time.Time) []time.Time {
	var out []time.Time
	for _, i := range p.every {
		for _, at := range i.CrashesOf(p.group().Revision) {
			if at.After(p.now) {
				at = p.now
			}
			if at.After(from) {
				out = append(out, at)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

func (p *pass) nextLoop(crashes []time.Time) crashloop.Loop {
	level := 1
	if p.in.CrashLoop != nil && !p.in.CrashLoop.ResetBy(p.group()) {
		level += p.in.CrashLoop.Level
	}
	loop := crashloop.Loop{
		Group: p.group().Name, GroupRevision: p.group().Revision, Level: level,
		Since: crashes[0], Crashes: len(crashes), PausedAt: p.now, PausedUntil: p.now.Add(p.in.Limits.pause(level)),
		Last: p.lastCrash(),
	}
	for _, a := range p.in.Ancestors {
		if loop.Ancestors == nil {
			loop.Ancestors = map[fleet.GroupName]int64{}
		}
		loop.Ancestors[a.Name] = a.Revision
	}
	return loop
}

// clearCrashLoop removes the crash loop after a quiet time since the last crash or the end of the
// pause, whichever is later.
func (p *pass) clearCrashLoop() {
	loop := p.in.CrashLoop
	if loop == nil {
		return
	}
	since := loop.EndsAt(p.group(), p.in.Ancestors)
	if loop.ResetBy(p.group()) {
		p.act(Action{Kind: ClearCrashLoop, Reason: fleet.ReasonRequested, Message: "somebody reset it"})
		return
	}
	if crashes := p.crashesAfter(since); len(crashes) > 0 {
		since = crashes[len(crashes)-1]
	}
	due := since.Add(max(p.in.Limits.Quiet, 2*p.in.Limits.pause(loop.Level)))
	if due.After(p.now) {
		p.wakeAt(due)
		return
	}
	p.act(Action{Kind: ClearCrashLoop, Reason: fleet.ReasonCalm, Message: fleet.ReasonCalm.Text()})
}

// backoff returns the delay after the n-th crash of the window: none after the first, then
// doubling.
func (l Limits) backoff(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return doubled(l.BackoffFirst, n-2, l.BackoffMax)
}

// pause returns the length of the pause of a level, from 1.
func (l Limits) pause(level int) time.Duration {
	return doubled(l.PauseFirst, level-1, l.PauseMax)
}

func doubled(d time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if d >= limit {
			break
		}
		d *= 2
	}
	return min(d, limit)
}

func latest(times ...time.Time) time.Time {
	var out time.Time
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}
