// Package source publishes the templates of a directory, <dir>/<group>/<name>/,
// and keeps watching it.
//
//	change seen ──quiet for 1 s, 3 s when something was added──▶ scan ──unchanged under the reading──▶ publish
//	                 ▲       or 1 min after the first              │
//	                 └───────────── changed while read ◀───────────┘
//
// Invariants: a template to which files are added with less than 3 s between them, for up
// to a minute, is published once, with all of them; a file is published only when nobody
// has it open for writing and its size, time and inode were the same before and after it
// was read, so nothing half-written is; nothing outside a template's directory is read; a
// template's head is removed only when this very directory published it, which its id
// tells, this replica has seen it there, or one before it in the same place, and its own
// directory is gone while others are there. One that is empty, not mounted, a copy, or another at the same
// path removes nothing; replicas whose directories differ neither remove nor overwrite
// each other's templates in turns.
package source

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

const (
	rescan = time.Minute // safety net under lost notifications
	again  = time.Second // between looks at a file that somebody has open for writing, or at what changes meanwhile
)

// Config is what a watched directory needs. All but Quiet, Others and Remote are required.
type Config struct {
	// Dir holds <group>/<name>/; it is made if need be.
	Dir string
	// Quiet is how long nothing in a template may change before it is read, three times as
	// long when something was added to it; 0 is DefaultQuiet.
	Quiet   time.Duration
	Service *template.Service
	// Store is where Replica, this one's name, tells how the directory stands.
	Store   *store.Client
	Replica string
	// Others counts the other replicas that live: they may have directories of their
	// own. Nil: there are none.
	Others func(context.Context) (int, error)
	// Remote says that it takes a request to learn whether a content is stored: it is
	// asked for what is to be published alone, not at each look.
	Remote bool
	// Now reads the wall clock, for the times that are stored.
	Now func() time.Time
	Log *slog.Logger
}

// Directory is a watched source. Make it with New, then Run it.
type Directory struct {
	dir     string
	quiet   time.Duration
	service *template.Service
	store   *store.Client
	replica string
	others  func(context.Context) (int, error)
	remote  bool
	now     func() time.Time
	log     *slog.Logger
	scanner scanner

	synced chan struct{}
	asked  chan string // what is confirmed, whenever somebody asks for a look
	// dirty holds the templates that changed and are not published yet, met those that were
	// ever looked at; started says that the first look is over. Owned by Run.
	dirty   map[fleet.TemplateRef]*changed
	met     map[fleet.TemplateRef]bool
	started bool
	// complained holds what was already said about a template, so that it is said once. Owned by Run.
	complained map[string]string
	// refused is why templates are not published as they are, by name, and remarks what is
	// to be told of others; untold says that this has changed since
	// it was told, fresh says that somebody waits to hear when it was looked. Owned by Run.
	refused, remarks map[string]string
	untold, fresh    bool
	// All below is owned by Run. held are the templates that were seen in the directory
	// of that id; alone is whether no other replica lived then, shared whether one had
	// the same directory; leaving whether some template's directory is gone, anew whether
	// all is to be read again soon; holding whether something is held. memory is what is
	// told of that; its ID is d.id once it was read what was told before the start.
	held                   map[fleet.TemplateRef]seenAs
	id, confirmed          string
	alone, shared          bool
	leaving, anew, holding bool
	memory                 fleet.DirectoryMemory
}

// New makes a source over a directory, which it creates if need be.
func New(cfg Config) (*Directory, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, errs.As(errs.Invalid, "source.New", err)
	}
	return &Directory{
		dir: cfg.Dir, quiet: cmp.Or(cfg.Quiet, DefaultQuiet), service: cfg.Service, store: cfg.Store, replica: cfg.Replica, others: cfg.Others, remote: cfg.Remote, now: cfg.Now, log: cfg.Log,
		scanner: scanner{seen: map[string]hashed{}, limits: fleet.VersionLimits(), now: time.Now, lease: lease},
		synced:  make(chan struct{}), dirty: map[fleet.TemplateRef]*changed{}, met: map[fleet.TemplateRef]bool{}, complained: map[string]string{}, refused: map[string]string{}, remarks: map[string]string{}, fresh: true,
		held: map[fleet.TemplateRef]seenAs{}, asked: make(chan string, 1),
	}, nil
}

// Synced is closed when everything found at the start has been published.
func (d *Directory) Synced() <-chan struct{} { return d.synced }

// Run publishes what is there and then what changes, until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	news := d.listen()
	defer news.close()
	d.all(ctx)
	d.started = true
	close(d.synced)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { _ = d.store.Follow(ctx, store.DirectorySyncKey().String(), d) }) // ends with ctx

	safety := time.NewTicker(rescan)
	defer safety.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		due.Reset(d.nextDue(time.Now()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-news.events:
			d.note(news.watch, ev, time.Now())
		case <-news.pollTimer.C:
			for _, ev := range news.look(d.dir) {
				d.note(news.watch, ev, time.Now())
			}
		case err := <-news.errors:
			d.log.Warn("changes of the template directory may have been missed, reading all of it", "error", err)
			d.all(ctx)
		case d.confirmed = <-d.asked:
			d.fresh = true
			d.all(ctx)
		case <-safety.C:
			d.watchTree(news.watch, d.dir)
			d.all(ctx)
		case <-due.C:
			d.publishDue(ctx, time.Now())
		}
	}
}

// news tells of changes in a directory: the kernel's notifications, or what poll finds where
// the kernel refuses them.
type news struct {
	watch  func(path string) error
	events <-chan fsnotify.Event
	errors <-chan error
	close  func() error
	// pollTimer fires when poller is to look again.
	pollTimer *time.Timer
	poller    poller
}

// listen begins to hear of changes in the directory.
func (d *Directory) listen() *news {
	n := &news{pollTimer: time.NewTimer(pollEvery)}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.complain("", "the kernel does not tell of changes in the template directory; it is read every second, or less often when it is large: "+
			"raise fs.inotify.max_user_instances, or the limit of open files, and start again", err)
		n.watch, n.close = func(string) error { return nil }, func() error { n.pollTimer.Stop(); return nil }
		n.look(d.dir)
		return n
	}
	n.pollTimer.Stop()
	n.watch, n.events, n.errors, n.close = watcher.Add, watcher.Events, watcher.Errors, watcher.Close
	d.watchTree(n.watch, d.dir)
	return n
}

// look finds what has changed since the look before, and sets the time of the next.
func (n *news) look(dir string) []fsnotify.Event {
	began := time.Now()
	changes := n.poller.look(dir)
	n.pollTimer.Reset(max(pollEvery, pollRest*time.Since(began)))
	return changes
}

// Reset implements store.Handler.
func (d *Directory) Reset(kvs []store.KeyValue, _ int64) {
	for _, kv := range kvs {
		d.ask(kv)
	}
}

// Apply implements store.Handler.
func (d *Directory) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		if !c.Removed {
			d.ask(c.KeyValue)
		}
	}
}

// ask has all of the directory looked at, with the latest confirmation.
func (d *Directory) ask(kv store.KeyValue) {
	wanted, err := store.Decode[fleet.DirectorySync](kv)
	if err != nil {
		return
	}
	select {
	case <-d.asked: // what was asked before is asked again by this
	default:
	}
	d.asked <- wanted.Confirmed
}

// markUnder marks the templates inside a group directory, which are new.
func (d *Directory) markUnder(path string, now time.Time) {
	if filepath.Dir(path) != d.dir {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if ref, ok := d.refOf(filepath.Join(path, e.Name())); ok && e.IsDir() {
			d.mark(ref, now).grew(true)
		}
	}
}

// markSeen marks the templates that were read below a path.
func (d *Directory) markSeen(path string, now time.Time) {
	for file := range d.scanner.seen {
		if ref, ok := d.refOf(file); ok && strings.HasPrefix(file, path+string(filepath.Separator)) {
			d.mark(ref, now)
		}
	}
}

func isDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
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

func (d *Directory) publishDue(ctx context.Context, now time.Time) {
	if d.id == "" { // it was empty: what it is given now carries its id from the first
		if _, err := d.known(); err != nil {
			d.complain(d.dir, "the template directory cannot be read; templates stay as they are", err)
			for _, c := range d.dirty {
				c.until = now.Add(again)
			}
			return
		}
	}
	for ref, c := range d.dirty {
		if !c.due(d.quiet).After(now) {
			d.publish(ctx, ref)
		}
	}
	switch {
	case d.anew:
		d.all(ctx)
	case d.leaving, d.untold:
		d.countOthers(ctx)
		d.removeGone(ctx)
	}
}

// all publishes every template in the directory and retracts those whose own directory is gone.
func (d *Directory) all(ctx context.Context) {
	d.anew = false
	groups, err := d.known()
	if err != nil {
		d.complain(d.dir, "the template directory cannot be read; templates stay as they are", err)
		return
	}
	d.countOthers(ctx)
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
				d.complain(ref.String(), "template not published", errMisnamed)
				d.refuse(ref.String(), errs.MessageOf(errMisnamed))
			case d.waits(ref, time.Now()): // it is read when its time has come
			default:
				d.publish(ctx, ref)
			}
		}
	}
	d.removeGone(ctx)
}

// known lists the directory, and finds out which one it is.
func (d *Directory) known() ([]fs.DirEntry, error) {
	groups, err := os.ReadDir(d.dir)
	if err == nil {
		err = d.identify(!slices.ContainsFunc(groups, fs.DirEntry.IsDir))
	}
	return groups, err
}

// identify finds out which directory is looked at. Of another one than before, nothing
// is known.
func (d *Directory) identify(empty bool) error {
	id, err := identify(d.dir, empty)
	if err == nil && id != d.id {
		d.id = id
		clear(d.held)
		clear(d.scanner.seen)
	}
	return err
}

// gone reports whether a template's directory was removed.
func (d *Directory) gone(ref fleet.TemplateRef) bool {
	_, err := os.Stat(filepath.Join(d.dir, ref.Group, ref.Name))
	return errors.Is(err, fs.ErrNotExist)
}

// unmounted reports whether an empty directory is where a template was mounted.
func (d *Directory) unmounted(ref fleet.TemplateRef) bool {
	seen, ok := d.held[ref]
	path := filepath.Join(d.dir, ref.Group, ref.Name)
	if !ok || deviceOf(path) == seen.own {
		return false
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// publish reads a template and makes it the head; a tree that changes under the
// reading is marked to be read again.
func (d *Directory) publish(ctx context.Context, ref fleet.TemplateRef) {
	before, restless := d.dirty[ref], ""
	if before != nil {
		restless = before.impatient(d.quiet, time.Now())
	}
	delete(d.dirty, ref)
	switch {
	case d.gone(ref):
		d.leaving = true
		delete(d.met, ref)
		d.refuse(ref.String(), "")
		return
	case ref.Internal():
		d.complain(ref.String(), "template not published", template.ErrInternal)
		d.refuse(ref.String(), errs.MessageOf(template.ErrInternal))
		return
	case d.unmounted(ref):
		d.complain(ref.String(), "template not published", errUnmounted)
		d.refuse(ref.String(), errs.MessageOf(errUnmounted))
		return
	}
	err := d.read(ctx, ref)
	var open writing
	switch {
	case errors.Is(err, errChanging):
		d.markAgain(ref, before, time.Now())
	case err == nil:
		delete(d.complained, ref.String())
		d.refuse(ref.String(), "")
		d.remark(ref.String(), restless)
	case errors.As(err, &open):
		d.markAgain(ref, before, time.Now())
		d.complain(ref.String(), "template not published yet: close the file, or take it out of the directory", err)
		d.remark(ref.String(), "not published yet: "+open.Error()+"; close it, or take it out of the directory")
	case ctx.Err() != nil:
	default:
		d.complain(ref.String(), "template not published", err)
		d.refuse(ref.String(), errs.MessageOf(err))
		if k := errs.KindOf(err); k == errs.Unavailable || k == errs.Fenced || k == errs.Conflict {
			d.markAgain(ref, before, time.Now())
		}
	}
}

// read stores what changed in a template's directory and publishes it. A publish is
// begun with the first file that has to be stored: looking changes nothing.
func (d *Directory) read(ctx context.Context, ref fleet.TemplateRef) error {
	shelf := &shelf{service: d.service, what: "directory of " + ref.String(), trusting: d.remote}
	defer shelf.close(ctx)
	scan := func() (m fleet.Manifest, digest string, err error) {
		if m, err = d.scanner.scan(ctx, d.dir, ref, shelf); err == nil {
			_, digest, err = m.Canonical(fleet.VersionLimits())
		}
		return m, digest, err
	}
	m, digest, err := scan()
	if err != nil {
		return err
	}
	now := seenAs{digest: digest, group: deviceOf(filepath.Join(d.dir, ref.Group)), own: deviceOf(filepath.Join(d.dir, ref.Group, ref.Name))}
	head, err := d.service.Head(ctx, ref)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	if _, seen := d.held[ref]; !seen && len(m.Entries) == 0 && publishedHere(head) && head.SourceDigest != digest {
		return errs.New(errs.Invalid, "the template's directory is empty, but was not when it was published: is something not mounted? it stays as it was published; to empty it, put a file there and take it away again")
	}
	if !d.alone && yields(d.id, digest, d.held[ref], head) {
		d.held[ref] = now
		return errs.New(errs.AlreadyExists, "another replica's directory has other files for it, which stay: make the directories alike, or change it here")
	}
	if _, err := d.service.CheckOrigin(ctx, head, fleet.DirectoryOrigin); err != nil {
		return err
	}
	if d.remote && head.SourceDigest != digest {
		shelf.trusting = false
		if m, now.digest, err = scan(); err != nil {
			return err
		}
	}
	if _, _, err = d.service.PublishSource(ctx, shelf.publish, ref, m, template.Provenance{
		Author: "source", Message: "directory changed", Origin: fleet.DirectoryOrigin, Directory: d.id,
	}); err == nil {
		if _, seen := d.held[ref]; !seen { // that it is here is told
			d.untold = true
		}
		d.held[ref] = now
	}
	return err
}

// shelf is where the files of one directory are stored while it is read.
type shelf struct {
	service *template.Service
	what    string
	publish *template.Publish // nil until a file has to be stored
	// trusting takes what was stored when it was last read for stored, as it is while a
	// head that was published names it.
	trusting bool
}

func (s *shelf) stored(ctx context.Context, c fleet.Content) (bool, error) {
	if s.trusting {
		return true, nil
	}
	return s.service.Stored(ctx, c)
}

func (s *shelf) add(ctx context.Context, r io.Reader, limit int64) (c fleet.Content, err error) {
	if s.publish == nil {
		if s.publish, err = s.service.Begin(ctx, s.what); err != nil {
			return c, err
		}
	}
	return s.publish.Add(ctx, r, limit)
}

func (s *shelf) close(ctx context.Context) {
	if s.publish != nil {
		s.publish.Close(ctx)
	}
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
