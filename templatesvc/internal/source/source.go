// Package source publishes the templates of a directory, <dir>/<group>/<name>/,
// and keeps watching it.
//
//	change seen ──quiet for 100 ms, or 2 s after the first──▶ scan ──unchanged under the reading──▶ publish
//	                 ▲                                          │
//	                 └───────────── changed while read ◀────────┘
//
// Invariants: a file is published only when nobody has it open for writing and its
// size, time and inode were the same before and after it was read, so nothing
// half-written is; nothing outside a template's directory is read; a template's
// head is removed only when this directory published it and its own directory is
// gone while the directory around it can be read: a source that is away as a whole
// removes nothing, nor does another replica's directory.
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
	again    = time.Second            // between looks at a file that somebody has open for writing
)

// Config is what a watched directory needs. All but Others are required.
type Config struct {
	// Dir holds <group>/<name>/; it is made if need be.
	Dir     string
	Service *template.Service
	// Others counts the other replicas that live: they may have directories of their
	// own. Nil: there are none.
	Others func(context.Context) (int, error)
	Log    *slog.Logger
}

// Directory is a watched source. Make it with New, then Run it.
type Directory struct {
	dir     string
	service *template.Service
	others  func(context.Context) (int, error)
	log     *slog.Logger
	scanner scanner

	synced chan struct{}
	// dirty holds when a template's first and latest unpublished changes were seen. Owned by Run.
	dirty map[fleet.TemplateRef]*changed
	// complained holds what was already said about a template, so that it is said once. Owned by Run.
	complained map[string]string
	// held are the templates that were seen here. Owned by Run.
	held map[fleet.TemplateRef]bool
}

// changed is when a template was changed; it is not read before until.
type changed struct{ first, last, until time.Time }

// New makes a source over a directory, which it creates if need be.
func New(cfg Config) (*Directory, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, errs.As(errs.Invalid, "source.New", err)
	}
	return &Directory{
		dir: cfg.Dir, service: cfg.Service, others: cfg.Others, log: cfg.Log,
		scanner: scanner{seen: map[string]hashed{}, limits: fleet.VersionLimits(), now: time.Now, lease: lease},
		synced:  make(chan struct{}), dirty: map[fleet.TemplateRef]*changed{}, complained: map[string]string{},
		held: map[fleet.TemplateRef]bool{},
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
	d.watchTree(watcher.Add, d.dir)
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
			d.watchTree(watcher.Add, d.dir)
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
			d.watchTree(w.Add, ev.Name)
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
	due := c.last.Add(quiet)
	if byPatience := c.first.Add(patience); byPatience.Before(due) {
		due = byPatience
	}
	if due.Before(c.until) {
		return c.until
	}
	return due
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
	refs, err := d.service.Published(ctx, fleet.DirectoryOrigin)
	if err != nil {
		d.complain("", "templates could not be listed", err)
		return
	}
	alone := d.alone(ctx)
	for _, ref := range refs {
		// What was never here may be in the directory of another replica.
		if (d.held[ref] || alone) && d.gone(ref) {
			d.retract(ctx, ref)
		}
	}
}

func (d *Directory) alone(ctx context.Context) bool {
	if d.others == nil {
		return true
	}
	n, err := d.others(ctx)
	return err == nil && n == 0
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
	if err := d.service.Retract(ctx, ref, fleet.DirectoryOrigin); err != nil {
		d.complain(ref.String(), "template not removed", err)
		return
	}
	delete(d.held, ref)
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
		if d.held[ref] {
			d.retract(ctx, ref)
		}
		return
	}
	d.held[ref] = true
	err := d.read(ctx, ref)
	var open writing
	switch {
	case errors.Is(err, errChanging):
		d.mark(ref)
	case err == nil:
		delete(d.complained, ref.String())
	case errors.As(err, &open):
		d.mark(ref)
		d.dirty[ref].until = time.Now().Add(again)
		d.complain(ref.String(), "template not published yet: close the file, or take it out of the directory", err)
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
	d.scanner.stored = func(c fleet.Content) bool { return d.service.Stored(ctx, c) }
	m, err := d.scanner.scan(d.dir, ref, func(r io.Reader, limit int64) (c fleet.Content, err error) {
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

// watchTree watches a directory and all below it, as far as the kernel lets it.
func (d *Directory) watchTree(watch func(string) error, root string) {
	var refused error
	_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() { // what vanished needs no watch
			if err := watch(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				refused = err
			}
		}
		return nil
	})
	if refused != nil {
		d.complain("", "not all of the template directory can be watched, it is read every minute instead: raise fs.inotify.max_user_watches", refused)
	}
}
