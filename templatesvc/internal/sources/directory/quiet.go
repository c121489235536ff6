package directory

import (
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

const (
	// DefaultQuiet is how long a template must be unchanged before it is read.
	DefaultQuiet = time.Second
	// growth multiplies the quiet time of a template that gains files or directories.
	// A user may be copying a tree, with pauses between files on a slow connection or
	// from an archive.
	growth = 3
	// patience is how long after its first change a template is read even though it keeps
	// changing. A template that is written to continuously is published this often.
	patience = time.Minute
)

// changed records when a template's first and latest unpublished changes were seen. The
// template is not read before until. growing is true when something was added to it.
type changed struct {
	first, last, until time.Time
	growing            bool
}

// due returns when to read the template.
func (c *changed) due(quiet time.Duration) time.Time {
	due := c.ripe(quiet)
	if due.Before(c.until) {
		return c.until
	}
	return due
}

// ripe returns when the changes count as finished, at most patience after the first one.
func (c *changed) ripe(quiet time.Duration) time.Time {
	ripe := c.settled(quiet)
	if byPatience := c.first.Add(patience); byPatience.Before(ripe) {
		return byPatience
	}
	return ripe
}

// settled returns when the template has been unchanged for long enough.
func (c *changed) settled(quiet time.Duration) time.Time {
	if c.growing {
		quiet *= growth
	}
	return c.last.Add(quiet)
}

// impatient returns a remark if a template is read although it is still changing, and
// otherwise "".
func (c *changed) impatient(quiet time.Duration, now time.Time) string {
	if !c.settled(quiet).After(now) {
		return ""
	}
	return fmt.Sprintf("it has been changing for %s, and is published as it stands: write where no template is, and rename it into place", patience)
}

// note marks the template that a notification belongs to and watches new directories.
func (d *Directory) note(watch func(string) error, ev fsnotify.Event, now time.Time) {
	grows := ev.Has(fsnotify.Create) && d.adds(ev.Name)
	if grows && isDir(ev.Name) {
		d.watchTree(watch, ev.Name)
		d.markUnder(ev.Name, now)
	}
	if ref, ok := d.refOf(ev.Name); ok {
		d.mark(ref, now).grew(grows)
		return
	}
	d.markUnder(ev.Name, now) // a whole group appeared or disappeared
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		d.markSeen(ev.Name, now)
	}
}

// adds reports whether a path is new. A file that was read before is not: editors replace a
// changed file by a new one.
func (d *Directory) adds(path string) bool {
	_, known := d.scanner.seen[path]
	return !known
}

// mark records that a template has changed.
func (d *Directory) mark(ref content.TemplateRef, now time.Time) *changed {
	c := d.dirty[ref]
	if c == nil {
		c = &changed{first: now}
		d.dirty[ref] = c
	}
	c.last = now
	return c
}

func (c *changed) grew(grows bool) { c.growing = c.growing || grows }

// markAgain schedules another attempt for a template that could not be read yet. The times
// of its changes stay the same.
func (d *Directory) markAgain(ref content.TemplateRef, before *changed, now time.Time) {
	c := &changed{first: now}
	if before != nil {
		*c = *before
	}
	c.until = now.Add(again)
	d.dirty[ref] = c
}

// waits reports whether a template is still changing. A template that is first seen after
// the start counts as changing, because its notifications may be lost or still to come.
func (d *Directory) waits(ref content.TemplateRef, now time.Time) bool {
	if !d.met[ref] {
		d.met[ref] = true
		if d.started && d.dirty[ref] == nil {
			d.mark(ref, now).grew(true)
		}
	}
	c := d.dirty[ref]
	return c != nil && c.ripe(d.cfg.Quiet).After(now)
}

// nextDue returns how long to wait until a marked template has to be read.
func (d *Directory) nextDue(now time.Time) time.Duration {
	next := time.Hour
	if d.rescanSoon {
		next = again
	}
	for _, c := range d.dirty {
		next = min(next, max(0, c.due(d.cfg.Quiet).Sub(now)))
	}
	return next
}
