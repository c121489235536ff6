package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// gate says from when on the group may start something and, when this is the
// crash too many, which pause to write down.
func (p *pass) gate() (ready time.Time, pause *Action) {
	from := p.now.Add(-p.in.Limits.CrashWindow)
	if loop := p.in.CrashLoop; loop != nil {
		end := loop.EndsAt(p.group())
		if end.After(p.now) {
			return end, nil
		}
		from = latest(from, end)
	}
	crashes := p.crashesAfter(from)
	if len(crashes) == 0 {
		return time.Time{}, nil
	}
	if len(crashes) >= p.in.Limits.CrashLimit {
		loop := p.nextLoop(crashes)
		return loop.PausedUntil, &Action{
			Kind: SetCrashLoop, Loop: loop, Reason: fleet.ReasonCrashLoop,
			Message: fmt.Sprintf("%d crashes since %s: nothing is started until %s",
				loop.Crashes, loop.Since.UTC().Format(time.TimeOnly), loop.PausedUntil.UTC().Format(time.TimeOnly)),
		}
	}
	last := crashes[len(crashes)-1]
	return last.Add(p.in.Limits.backoff(len(crashes))), nil
}

// crashesAfter are the group's crashes after a time, oldest first. None is in the
// future, whatever its host's clock says.
func (p *pass) crashesAfter(from time.Time) []time.Time {
	var out []time.Time
	for _, i := range p.all {
		for _, at := range i.Crashes() {
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

func (p *pass) nextLoop(crashes []time.Time) fleet.CrashLoop {
	level := 1
	if p.in.CrashLoop != nil {
		level += p.in.CrashLoop.Level
	}
	return fleet.CrashLoop{
		Group: p.group().Name, GroupRevision: p.group().Revision, Level: level,
		Since: crashes[0], Crashes: len(crashes), PausedUntil: p.now.Add(p.in.Limits.pause(level)),
	}
}

// calm removes a crash loop after a quiet time, measured from the last crash or
// the end of the pause, whichever is later.
func (p *pass) calm() {
	loop := p.in.CrashLoop
	if loop == nil {
		return
	}
	since := loop.EndsAt(p.group())
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

// backoff is the delay after the n-th crash of the window: none, then doubling.
func (l Limits) backoff(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return doubled(l.BackoffFirst, n-2, l.BackoffMax)
}

// pause is the length of the pause of a level, from 1.
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
