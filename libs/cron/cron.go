// Package cron computes when a cron expression with a time zone is due.
//
// An expression has the five fields minute, hour, day of the month, month and day of the week. As in
// Vixie cron, a time is due on days that match either day field if both are restricted.
//
// On the days on which clocks change:
//
//   - If the hour field starts with "*", the expression means every so many minutes or hours. Times
//     that occur twice are due twice. Times that do not occur are not due.
//   - Otherwise each time is due once a day. A time that occurs twice is due the first time. A time
//     that does not occur is due at the first moment after the gap.
package cron

import (
	"strings"
	"time"
	_ "time/tzdata" // so that every host knows the same time zones

	robfig "github.com/robfig/cron/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

const (
	// maxExpression bounds an expression, in bytes.
	maxExpression = 256
	// maxShift is more than any clock is set back at once.
	maxShift = 3 * time.Hour
	// zoneMargin is how far from a wall clock time the offsets before and after a change are looked up.
	zoneMargin = 26 * time.Hour
	// maxSteps bounds the search for the next due time. An expression that is due each minute needs
	// 2 × maxShift in minutes.
	maxSteps = 1000
)

// Schedule is a valid expression in a time zone. Its zero value is never due.
type Schedule struct {
	spec robfig.Schedule
	zone *time.Location
	// often reports whether the hour field starts with "*".
	often bool
}

// Parse reads an expression of five fields. zone is a name of the IANA database; "" is UTC. It returns
// Invalid that names the field cron or timezone, also for an expression that is never due.
func Parse(expression, zone string) (Schedule, error) {
	location, err := Zone(zone)
	if err != nil {
		return Schedule{}, err
	}
	fields := strings.Fields(expression)
	if len(fields) != 5 || len(expression) > maxExpression {
		return Schedule{}, errs.Field("cron", "must have the five fields minute, hour, day of the month, month and day of the week, such as \"0 4 * * *\"; %q has %d", validate.Clip(expression), len(fields))
	}
	// ParseStandard would accept a time zone and descriptors such as @every, and panics on "TZ=".
	parser := robfig.NewParser(robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow)
	if strings.Contains(expression, "TZ=") {
		return Schedule{}, errs.Field("cron", "must not contain a time zone: set timezone")
	}
	spec, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return Schedule{}, errs.Field("cron", "%q is not valid: %v", validate.Clip(expression), err)
	}
	s := Schedule{spec: spec, zone: location, often: strings.HasPrefix(fields[1], "*")}
	if spec.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, errs.Field("cron", "%q names a day that does not exist", validate.Clip(expression))
	}
	return s, nil
}

// Zone returns a time zone of the IANA database; "" is UTC. It returns Invalid that names the field
// timezone.
func Zone(name string) (*time.Location, error) {
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" || len(name) > validate.MaxWord {
		return nil, errs.Field("timezone", "%q is not a time zone: use a name such as Europe/Berlin or UTC", validate.Clip(name))
	}
	return location, nil
}

// Next returns the first due time after a time. ok is false if there is no such time within five years.
func (s Schedule) Next(after time.Time) (due time.Time, ok bool) {
	if s.spec == nil {
		return due, false
	}
	// The expression is matched against wall clock times, written as UTC. A wall clock time maps to
	// zero, one or two moments, and later wall clock times may map to earlier moments.
	var last time.Time
	wall := s.wall(after).Add(-maxShift)
	for range maxSteps {
		if wall = s.spec.Next(wall); wall.IsZero() || ok && wall.After(last.Add(maxShift)) {
			break
		}
		for _, at := range s.moments(wall) {
			if at.After(after) && (!ok || at.Before(due)) {
				due, ok, last = at, true, wall
			}
		}
	}
	return due, ok
}

// Latest returns the last due time in (since, until]. ok is false if there is none.
func (s Schedule) Latest(since, until time.Time) (due time.Time, ok bool) {
	// Each round ends with a later due time or a range half as long.
	for until.Sub(since) >= time.Second {
		next, found := s.Next(since)
		if !found || next.After(until) {
			break
		}
		due, ok, since = next, true, next
		middle := since.Add(until.Sub(since) / 2)
		if next, found = s.Next(middle); found && !next.After(until) {
			due, since = next, next
		} else {
			until = middle
		}
	}
	return due, ok
}

// wall returns what the clock on the wall shows at a time, as UTC.
func (s Schedule) wall(t time.Time) time.Time {
	_, offset := t.In(s.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// moments returns when a wall clock time is due.
func (s Schedule) moments(wall time.Time) (out []time.Time) {
	before := s.at(wall, wall.Add(-zoneMargin))
	after := s.at(wall, wall.Add(zoneMargin))
	if s.wall(before).Equal(wall) {
		out = append(out, before)
	}
	if !after.Equal(before) && s.wall(after).Equal(wall) && (s.often || len(out) == 0) {
		out = append(out, after)
	}
	if len(out) == 0 && !s.often {
		gap, _ := before.In(s.zone).ZoneBounds()
		out = append(out, gap.UTC())
	}
	return out
}

// at returns the moment of a wall clock time with the offset that applies at a time.
func (s Schedule) at(wall, of time.Time) time.Time {
	_, offset := of.In(s.zone).Zone()
	return wall.Add(-time.Duration(offset) * time.Second)
}
