// Package source publishes the templates of a directory, <dir>/<group>/<name>/,
// and keeps watching it.
//
//	change seen ──quiet for 100 ms, or 2 s after the first──▶ scan ──unchanged under the reading──▶ publish
//	                 ▲                                          │
//	                 └───────────── changed while read ◀────────┘
//
// Invariants: a file is published only when size, time and inode were the same
// before and after it was read, so nothing half-written is; a template's head is
// removed only when its own directory is gone while the directory around it can
// be read: a source that is away as a whole removes nothing.
package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

const (
	quiet    = 100 * time.Millisecond // without a change before a template is read
	patience = 2 * time.Second        // after the first change it is read all the same
	rescan   = time.Minute            // safety net under lost notifications
)

// Directory is a watched source. Make it with New, then Run it.
type Directory struct {
	dir     string
	service *template.Service
	log     *slog.Logger
	scanner scanner

	synced chan struct{}
	// dirty holds when a template's first and latest unpublished changes were seen. Owned by Run.
	dirty map[fleet.TemplateRef]*changed
	// complained holds what was already said about a template, so that it is said once. Owned by Run.
	complained map[string]string
}

type changed struct{ first, last time.Time }

// New makes a source over a directory, which it creates if need be.
func New(dir string, s *template.Service, log *slog.Logger) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errs.As(errs.Invalid, "source.New", err)
	}
	return &Directory{
		dir: dir, service: s, log: log, scanner: scanner{stored: s.Stored, seen: map[string]hashed{}, limits: fleet.VersionLimits()},
		synced: make(chan struct{}), dirty: map[fleet.TemplateRef]*changed{}, complained: map[string]string{},
	}, nil
}

// Synced is closed when everything found at the start has been published.
func (d *Directory) Synced() <-chan struct{} { return d.synced }

// Run publishes what is there and then what changes, until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return errs.As(errs.Unavailable, "source.Run", err)
	}
	defer watcher.Close()
	d.watchTree(watcher, d.dir)
	d.all(ctx)
	close(d.synced)

	safety := time.NewTicker(rescan)
	defer safety.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		due.Reset(d.nextDue(time.Now()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-watcher.Events:
			d.note(watcher, ev)
		case err := <-watcher.Errors:
			d.log.Warn("changes of the template directory may have been missed, reading all of it", "error", err)
			d.all(ctx)
		case <-safety.C:
			d.watchTree(watcher, d.dir)
			d.all(ctx)
		case <-due.C:
			d.publishDue(ctx, time.Now())
		}
	}
}

// note marks the template a notification belongs to and watches new directories.
func (d *Directory) note(w *fsnotify.Watcher, ev fsnotify.Event) {
	if ev.Has(fsnotify.Create) {
		if fi, err := os.Lstat(ev.Name); err == nil && fi.IsDir() {
			d.watchTree(w, ev.Name)
			d.markUnder(ev.Name)
		}
	}
	if ref, ok := d.refOf(ev.Name); ok {
		d.mark(ref)
		return
	}
	d.markUnder(ev.Name) // a whole group appeared or went
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		for path := range d.scanner.seen {
			if ref, ok := d.refOf(path); ok && strings.HasPrefix(path, ev.Name+string(filepath.Separator)) {
				d.mark(ref)
			}
		}
	}
}

func (d *Directory) mark(ref fleet.TemplateRef) {
	now := time.Now()
	c := d.dirty[ref]
	if c == nil {
		c = &changed{first: now}
		d.dirty[ref] = c
	}
	c.last = now
}

// markUnder marks the templates inside a group directory.
func (d *Directory) markUnder(path string) {
	if filepath.Dir(path) != d.dir {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if ref, ok := d.refOf(filepath.Join(path, e.Name())); ok && e.IsDir() {
			d.mark(ref)
		}
	}
}

// refOf is the template a path lies in. ok is false above <group>/<name>.
func (d *Directory) refOf(path string) (fleet.TemplateRef, bool) {
	rel, err := filepath.Rel(d.dir, path)
	if err != nil {
		return fleet.TemplateRef{}, false
	}
	parts := strings.SplitN(filepath.ToSlash(rel), "/", 3)
	if len(parts) < 2 {
		return fleet.TemplateRef{}, false
	}
	ref := fleet.TemplateRef{Group: parts[0], Name: parts[1]}
	return ref, ref.Valid()
}

// nextDue is how long until some marked template is to be read.
func (d *Directory) nextDue(now time.Time) time.Duration {
	next := time.Hour
	for _, c := range d.dirty {
		next = min(next, max(0, c.due().Sub(now)))
	}
	return next
}

func (c *changed) due() time.Time {
	byQuiet, byPatience := c.last.Add(quiet), c.first.Add(patience)
	if byPatience.Before(byQuiet) {
		return byPatience
	}
	return byQuiet
}

func (d *Directory) publishDue(ctx context.Context, now time.Time) {
	for ref, c := range d.dirty {
		if c.due().After(now) {
			continue
		}
		delete(d.dirty, ref)
		d.publish(ctx, ref)
	}
}

// all publishes every template in the directory and retracts those whose own directory is gone.
func (d *Directory) all(ctx context.Context) {
	groups, err := os.ReadDir(d.dir)
	if err != nil {
		d.complain(d.dir, "the template directory cannot be read; templates stay as they are", err)
		return
	}
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		names, err := os.ReadDir(filepath.Join(d.dir, g.Name()))
		if err != nil {
			d.complain(g.Name(), "the template group cannot be read", err)
			continue
		}
		for _, n := range names {
			ref := fleet.TemplateRef{Group: g.Name(), Name: n.Name()}
			switch {
			case !n.IsDir():
			case !ref.Valid():
				d.complain(ref.String(), "not published: rename it to letters, digits, _ . and -", nil)
			default:
				d.publish(ctx, ref)
			}
		}
	}
	d.retractGone(ctx)
}

func (d *Directory) retractGone(ctx context.Context) {
	refs, err := d.service.Refs(ctx)
	if err != nil {
		d.complain("", "templates could not be listed", err)
		return
	}
	for _, ref := range refs {
		if d.gone(ref) {
			d.retract(ctx, ref)
		}
	}
}

// gone reports whether a template's directory was removed, and not the whole source with it.
func (d *Directory) gone(ref fleet.TemplateRef) bool {
	if _, err := os.ReadDir(d.dir); err != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(d.dir, ref.Group, ref.Name))
	return errors.Is(err, fs.ErrNotExist)
}

func (d *Directory) retract(ctx context.Context, ref fleet.TemplateRef) {
	if err := d.service.Retract(ctx, ref); err != nil {
		d.complain(ref.String(), "template not removed", err)
	}
	prefix := filepath.Join(d.dir, ref.Group, ref.Name) + string(filepath.Separator)
	for path := range d.scanner.seen {
		if strings.HasPrefix(path, prefix) {
			delete(d.scanner.seen, path)
		}
	}
}

// publish reads a template and makes it the head; a tree that changes under the
// reading is marked to be read again.
func (d *Directory) publish(ctx context.Context, ref fleet.TemplateRef) {
	if d.gone(ref) {
		d.retract(ctx, ref)
		return
	}
	err := d.read(ctx, ref)
	switch {
	case errors.Is(err, errChanging):
		d.mark(ref)
	case err == nil:
		delete(d.complained, ref.String())
	case ctx.Err() != nil:
	default:
		d.complain(ref.String(), "template not published", err)
		if k := errs.KindOf(err); k == errs.Unavailable || k == errs.Fenced || k == errs.Conflict {
			d.mark(ref)
		}
	}
}

// read stores what changed in a template's directory and publishes it. A publish is
// begun with the first file that has to be stored: looking changes nothing.
func (d *Directory) read(ctx context.Context, ref fleet.TemplateRef) error {
	var p *template.Publish
	defer func() {
		if p != nil {
			p.Close(ctx)
		}
	}()
	m, err := d.scanner.scan(filepath.Join(d.dir, ref.Group, ref.Name), func(r io.Reader, limit int64) (c fleet.Content, err error) {
		if p == nil {
			if p, err = d.service.Begin(ctx, "directory of "+ref.String()); err != nil {
				return c, err
			}
		}
		return p.Add(ctx, r, limit)
	})
	if err != nil {
		return err
	}
	_, _, err = d.service.PublishSource(ctx, p, ref, m, template.Provenance{
		Author: "source", Message: "directory changed", Origin: fleet.DirectoryOrigin,
	})
	return err
}

// complain logs a problem once until it changes.
func (d *Directory) complain(subject, message string, err error) {
	text := message
	if err != nil {
		text += ": " + err.Error()
	}
	if d.complained[subject] == text {
		return
	}
	d.complained[subject] = text
	d.log.Warn(message, "template", subject, "error", err)
}

// watchTree watches a directory and all below it.
func (d *Directory) watchTree(w *fsnotify.Watcher, root string) {
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // what vanished needs no watch
		}
		if e.IsDir() {
			return w.Add(p)
		}
		return nil
	})
	if err != nil {
		d.complain(root, "not all of the template directory can be watched; it is read every minute instead", err)
	}
}
