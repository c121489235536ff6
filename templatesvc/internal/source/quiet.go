package source

import (
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// DefaultQuiet is the quiet time of a template whose files change.
	DefaultQuiet = time.Second
	// growth is how many times longer a template is waited for to which files or
	// directories are added: somebody copies a tree into it, file by file, and between two
	// of them lies what a slow line or an archive takes for one.
	growth = 3
	// patience is how long after its first change a template is read all the same: one in
	// which something is written for ever is published now and then.
	patience = time.Minute
)

// changed is when a template's first and latest unpublished changes were seen. It is not
// read before until; growing says that something was added to it.
type changed struct {
	first, last, until time.Time
	growing            bool
}

// due is when the template is read.
func (c *changed) due(quiet time.Duration) time.Time {
	due := c.ripe(quiet)
	if due.Before(c.until) {
		return c.until
	}
	return due
}

// ripe is when its changes have ended, as far as anybody waits for that.
func (c *changed) ripe(quiet time.Duration) time.Time {
	ripe := c.settled(quiet)
	if byPatience := c.first.Add(patience); byPatience.Before(ripe) {
		return byPatience
	}
	return ripe
}

// settled is when the template has been left alone for long enough.
func (c *changed) settled(quiet time.Duration) time.Time {
	if c.growing {
		quiet *= growth
	}
	return c.last.Add(quiet)
}

// impatient says, of a template that is read at a time though it goes on changing, that
// it is; "" of another.
func (c *changed) impatient(quiet time.Duration, now time.Time) string {
	if !c.settled(quiet).After(now) {
		return ""
	}
	return fmt.Sprintf("it has been changing for %s, and is published as it stands: write where no template is, and rename it into place", patience)
}

// note marks the template a notification belongs to and watches new directories.
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
	d.markUnder(ev.Name, now) // a whole group appeared or went
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		d.markSeen(ev.Name, now)
	}
}

// adds reports whether something is new at a path, and no file that was read there
// before, as editors put a changed one into the place of the one before.
func (d *Directory) adds(path string) bool {
	_, known := d.scanner.seen[path]
	return !known
}

// mark notes that a template has changed.
func (d *Directory) mark(ref fleet.TemplateRef, now time.Time) *changed {
	c := d.dirty[ref]
	if c == nil {
		c = &changed{first: now}
		d.dirty[ref] = c
	}
	c.last = now
	return c
}

func (c *changed) grew(grows bool) { c.growing = c.growing || grows }

// markAgain notes that a template could not be read yet: it is tried again in a while,
// and its changes stay those they were.
func (d *Directory) markAgain(ref fleet.TemplateRef, before *changed, now time.Time) {
	c := &changed{first: now}
	if before != nil {
		*c = *before
	}
	c.until = now.Add(again)
	d.dirty[ref] = c
}

// waits reports whether a template is changing, or is seen for the first time after the
// start: its notifications are lost, or still to come.
func (d *Directory) waits(ref fleet.TemplateRef, now time.Time) bool {
	if !d.met[ref] {
		d.met[ref] = true
		if d.started && d.dirty[ref] == nil {
			d.mark(ref, now).grew(true)
		}
	}
	c := d.dirty[ref]
	return c != nil && c.ripe(d.quiet).After(now)
}

// nextDue is how long until some marked template is to be read.
func (d *Directory) nextDue(now time.Time) time.Duration {
	next := time.Hour
	if d.anew {
		next = again
	}
	for _, c := range d.dirty {
		next = min(next, max(0, c.due(d.quiet).Sub(now)))
	}
	return next
}
