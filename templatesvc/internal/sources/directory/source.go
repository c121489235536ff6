// Package directory publishes the templates of a directory, <dir>/<group>/<name>/, and
// watches it for changes.
//
//	change seen ──unchanged for 1 s, or 3 s if something was added──▶ scan ──unchanged during the scan──▶ publish
//	                 ▲       at most 1 min after the first           │
//	                 └───────────── changed during the scan ◀────────┘
//
// Invariants:
//   - If files are added to a template with less than 3 s between them, for up to a minute,
//     it is published once, with all files.
//   - A file is published only if it is not open for writing and its size, time and inode
//     are the same before and after it is read. So no half-written file is published.
//   - Nothing outside a template's directory is read.
//   - A template's head is removed only if this directory, as its ID tells, published it,
//     this replica or a predecessor in the same place has seen it there, and its directory
//     is gone while others exist. An empty or unmounted directory, a copy, or another
//     directory at the same path removes nothing.
//   - Replicas with different directories do not alternately overwrite or remove each
//     other's templates.
package directory

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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

const (
	rescan = time.Minute // safety net for lost notifications
	again  = time.Second // pause before retrying a template that is open for writing or changing
)

// Config is what a watched directory needs. Quiet, Others and Remote are optional.
type Config struct {
	// Dir holds <group>/<name>/. New creates it if necessary.
	Dir string
	// Quiet is how long a template must be unchanged before it is read; three times as long
	// if something was added to it. 0 means DefaultQuiet.
	Quiet   time.Duration
	Service *versions.Service
	// Store is where the replica, named Replica, writes the directory's status.
	Store   *store.Client
	Replica string
	// Others counts the other live replicas, which may have directories of their own. Nil
	// means that there are none.
	Others func(context.Context) (int, error)
	// Remote is true if checking whether content is stored takes a request over the
	// network. The check is then made only before a publish, not at each look.
	Remote bool
	// Now returns the time for stored timestamps.
	Now func() time.Time
	Log *slog.Logger
}

// Directory is a watched template directory. Create it with New, then call Run.
type Directory struct {
	cfg     Config
	scanner scanner

	synced chan struct{}
	asked  chan string // the latest confirmation, sent when somebody requests a look
	// dirty holds the templates with unpublished changes, met those that were ever seen;
	// started is true after the first look. Owned by Run.
	dirty   map[content.TemplateRef]*changed
	met     map[content.TemplateRef]bool
	started bool
	// complained holds the latest logged problem per template, so that each is logged once.
	// Owned by Run.
	complained map[string]string
	// refused holds, by name, why templates are not published in their current state, and
	// remarks holds notes on others. statusStale is true when they have changed since the
	// status was written. confirmLook is true when a requested look has to be confirmed in
	// the status.
	// Owned by Run.
	refused, remarks         map[string]string
	statusStale, confirmLook bool
	// All fields below are owned by Run.
	//   - held: the templates that were seen in the directory with this id.
	//   - alone: no other replica is alive; shared: another one has the same directory.
	//   - leaving: a template's directory is gone; rescanSoon: everything must be read
	//     again soon; holding: a removal waits for confirmation.
	//   - memory: what is stored about the directory. Its ID equals id once the stored
	//     memory was read.
	held                         map[content.TemplateRef]seenAs
	id, confirmed                string
	alone, shared                bool
	leaving, rescanSoon, holding bool
	memory                       content.DirectoryMemory
}

// New returns a Directory and creates the directory if necessary.
func New(cfg Config) (*Directory, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, errs.WrapAs(errs.Invalid, "source.New", err)
	}
	cfg.Quiet = cmp.Or(cfg.Quiet, DefaultQuiet)
	return &Directory{
		cfg:     cfg,
		scanner: scanner{seen: map[string]hashed{}, limits: content.VersionLimits(), now: time.Now, lease: lease},
		synced:  make(chan struct{}), dirty: map[content.TemplateRef]*changed{}, met: map[content.TemplateRef]bool{}, complained: map[string]string{}, refused: map[string]string{}, remarks: map[string]string{}, confirmLook: true,
		held: map[content.TemplateRef]seenAs{}, asked: make(chan string, 1),
	}, nil
}

// Synced is closed when everything that was found at the start has been published.
func (d *Directory) Synced() <-chan struct{} { return d.synced }

// Run publishes the templates, and then their changes, until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	news := d.listen()
	defer news.close()
	d.all(ctx)
	d.started = true
	close(d.synced)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { _ = d.cfg.Store.Follow(ctx, keys.DirectorySync().String(), d) }) // ends with ctx

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
			for _, ev := range news.look(d.cfg.Dir) {
				d.note(news.watch, ev, time.Now())
			}
		case err := <-news.errors:
			d.cfg.Log.Warn("changes of the template directory may have been missed, reading all of it", "error", err)
			d.all(ctx)
		case d.confirmed = <-d.asked:
			d.confirmLook = true
			d.all(ctx)
		case <-safety.C:
			d.watchTree(news.watch, d.cfg.Dir)
			d.all(ctx)
		case <-due.C:
			d.publishDue(ctx, time.Now())
		}
	}
}

// news delivers the changes in a directory, from the kernel's notifications or, where the
// kernel refuses them, from polling.
type news struct {
	watch  func(path string) error
	events <-chan fsnotify.Event
	errors <-chan error
	close  func() error
	// pollTimer fires when the poller has to look again.
	pollTimer *time.Timer
	poller    poller
}

// listen starts to watch the directory.
func (d *Directory) listen() *news {
	n := &news{pollTimer: time.NewTimer(pollEvery)}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.complain("", "the kernel does not report changes in the template directory, so templatesvc reads it every second, or less often if it is large: "+
			"raise fs.inotify.max_user_instances, or the limit of open files, and start again", err)
		n.watch, n.close = func(string) error { return nil }, func() error { n.pollTimer.Stop(); return nil }
		n.look(d.cfg.Dir)
		return n
	}
	n.pollTimer.Stop()
	n.watch, n.events, n.errors, n.close = watcher.Add, watcher.Events, watcher.Errors, watcher.Close
	d.watchTree(n.watch, d.cfg.Dir)
	return n
}

// look returns the changes since the previous look and schedules the next one.
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

// ask requests a look at the whole directory, with the latest confirmation.
func (d *Directory) ask(kv store.KeyValue) {
	wanted, err := store.Decode[content.DirectorySync](kv)
	if err != nil {
		return
	}
	select {
	case <-d.asked: // the new request replaces the previous one
	default:
	}
	d.asked <- wanted.Confirmed
}

// markUnder marks the templates in a new group directory.
func (d *Directory) markUnder(path string, now time.Time) {
	if filepath.Dir(path) != d.cfg.Dir {
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

// markSeen marks the templates below a path that were read before.
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

// refOf returns the template that a path belongs to. ok is false if the path is above
// <group>/<name>.
func (d *Directory) refOf(path string) (content.TemplateRef, bool) {
	rel, err := filepath.Rel(d.cfg.Dir, path)
	if err != nil {
		return content.TemplateRef{}, false
	}
	parts := strings.SplitN(filepath.ToSlash(rel), "/", 3)
	if len(parts) < 2 {
		return content.TemplateRef{}, false
	}
	ref := content.TemplateRef{Group: parts[0], Name: parts[1]}
	return ref, ref.Valid()
}

func (d *Directory) publishDue(ctx context.Context, now time.Time) {
	if d.id == "" { // it was empty; the first publish must already carry its ID
		if _, err := d.known(); err != nil {
			d.complain(d.cfg.Dir, "the template directory cannot be read; templates stay as they are", err)
			for _, c := range d.dirty {
				c.until = now.Add(again)
			}
			return
		}
	}
	for ref, c := range d.dirty {
		if !c.due(d.cfg.Quiet).After(now) {
			d.publish(ctx, ref)
		}
	}
	switch {
	case d.rescanSoon:
		d.all(ctx)
	case d.leaving, d.statusStale:
		d.countOthers(ctx)
		d.removeGone(ctx)
	}
}

// all publishes every template in the directory and removes those whose directory is gone.
func (d *Directory) all(ctx context.Context) {
	d.rescanSoon = false
	groups, err := d.known()
	if err != nil {
		d.complain(d.cfg.Dir, "the template directory cannot be read; templates stay as they are", err)
		return
	}
	d.countOthers(ctx)
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		names, err := os.ReadDir(filepath.Join(d.cfg.Dir, g.Name()))
		if err != nil {
			d.complain(g.Name(), "the template group cannot be read", err)
			continue
		}
		for _, n := range names {
			ref := content.TemplateRef{Group: g.Name(), Name: n.Name()}
			switch {
			case !n.IsDir():
			case !ref.Valid():
				d.reject(ref, errMisnamed)
			case d.waits(ref, time.Now()): // publishDue reads it later
			default:
				d.publish(ctx, ref)
			}
		}
	}
	d.removeGone(ctx)
}

// known lists the directory and determines its ID.
func (d *Directory) known() ([]fs.DirEntry, error) {
	groups, err := os.ReadDir(d.cfg.Dir)
	if err == nil {
		err = d.identify(!slices.ContainsFunc(groups, fs.DirEntry.IsDir))
	}
	return groups, err
}

// identify determines the directory's ID. If the ID has changed, it forgets everything
// about the previous directory.
func (d *Directory) identify(empty bool) error {
	id, err := identify(d.cfg.Dir, empty)
	if err == nil && id != d.id {
		d.id = id
		clear(d.held)
		clear(d.scanner.seen)
	}
	return err
}

// gone reports whether a template's directory does not exist.
func (d *Directory) gone(ref content.TemplateRef) bool {
	_, err := os.Stat(filepath.Join(d.cfg.Dir, ref.Group, ref.Name))
	return errors.Is(err, fs.ErrNotExist)
}

// unmounted reports whether a template's directory is empty and on another device than
// before.
func (d *Directory) unmounted(ref content.TemplateRef) bool {
	seen, ok := d.held[ref]
	path := filepath.Join(d.cfg.Dir, ref.Group, ref.Name)
	if !ok || deviceOf(path) == seen.own {
		return false
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// publish reads a template and publishes it. If the tree changes meanwhile, publish
// schedules another attempt.
func (d *Directory) publish(ctx context.Context, ref content.TemplateRef) {
	before, restless := d.dirty[ref], ""
	if before != nil {
		restless = before.impatient(d.cfg.Quiet, time.Now())
	}
	delete(d.dirty, ref)
	switch {
	case d.gone(ref):
		d.leaving = true
		delete(d.met, ref)
		d.refuse(ref.String(), "")
		return
	case ref.Internal():
		d.reject(ref, versions.ErrInternal)
		return
	case d.unmounted(ref):
		d.reject(ref, errUnmounted)
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
		d.reject(ref, err)
		if k := errs.KindOf(err); k == errs.Unavailable || k == errs.Fenced || k == errs.Conflict {
			d.markAgain(ref, before, time.Now())
		}
	}
}

// read stores the changed files of a template and publishes it. The publish begins only
// when a file has to be stored, so an unchanged template causes no writes.
func (d *Directory) read(ctx context.Context, ref content.TemplateRef) error {
	shelf := &shelf{service: d.cfg.Service, what: "directory of " + ref.String(), trusting: d.cfg.Remote}
	defer shelf.close(ctx)
	scan := func() (m content.Manifest, digest string, err error) {
		if m, err = d.scanner.scan(ctx, d.cfg.Dir, ref, shelf); err == nil {
			_, digest, err = m.Canonical(content.VersionLimits())
		}
		return m, digest, err
	}
	m, digest, err := scan()
	if err != nil {
		return err
	}
	now := seenAs{digest: digest, group: deviceOf(filepath.Join(d.cfg.Dir, ref.Group)), own: deviceOf(filepath.Join(d.cfg.Dir, ref.Group, ref.Name))}
	head, err := d.cfg.Service.Head(ctx, ref)
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
	if _, err := d.cfg.Service.CheckOrigin(ctx, head, content.DirectoryOrigin); err != nil {
		return err
	}
	if d.cfg.Remote && head.SourceDigest != digest {
		shelf.trusting = false
		if m, now.digest, err = scan(); err != nil {
			return err
		}
	}
	if _, _, err = d.cfg.Service.PublishSource(ctx, shelf.publish, ref, m, versions.Provenance{
		Author: "source", Message: "directory changed", Origin: content.DirectoryOrigin, Directory: d.id,
	}); err == nil {
		if _, seen := d.held[ref]; !seen { // the status lists the template's arrival
			d.statusStale = true
		}
		d.held[ref] = now
	}
	return err
}

// shelf stores the files of one template while they are read.
type shelf struct {
	service *versions.Service
	what    string
	publish *versions.Publish // nil until the first file has to be stored
	// trusting assumes that files stored at an earlier read are still stored. That holds
	// while a published head refers to them.
	trusting bool
}

func (s *shelf) stored(ctx context.Context, c content.Content) (bool, error) {
	if s.trusting {
		return true, nil
	}
	return s.service.Stored(ctx, c)
}

func (s *shelf) add(ctx context.Context, r io.Reader, limit int64) (c content.Content, err error) {
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

// complain logs a problem, once until it changes.
func (d *Directory) complain(subject, message string, err error) {
	text := message
	if err != nil {
		text += ": " + err.Error()
	}
	if d.complained[subject] == text {
		return
	}
	d.complained[subject] = text
	d.cfg.Log.Warn(message, "template", subject, "error", err)
}

// watchTree watches a directory and everything below it, as far as the kernel allows.
func (d *Directory) watchTree(watch func(string) error, root string) {
	var refused error
	_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() { // a directory that vanished needs no watch
			if err := watch(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				refused = err
			}
		}
		return nil
	})
	if refused != nil {
		d.complain("", "the kernel cannot watch all of the template directory, so templatesvc reads it every minute: raise fs.inotify.max_user_watches", refused)
	}
}
