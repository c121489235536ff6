// Package backup keeps archives of the directories of static instances, and restores them.
//
// Invariants:
//   - An archive gets its name when it is complete and flushed. One that the agent could not complete is
//     removed, and nothing else changes.
//   - A restore builds the whole directory beside the data, verifies it, and exchanges the two in one step.
//     At each moment the instance has the old directory or the restored one. The old one is set aside.
//   - A server that got the lines to stop changing its data gets those that end this: after the archive, after
//     a failure, and from the next agent if this one was killed.
//   - One backup or restore of an instance runs at a time.
//
// The files in DIR/GROUP/NAME are, for each backup: ID.tar.zst (the archive) and ID.json (its record), and
// while it is made ID.partial and ID.job. A restore uses DATA/restoring/ID.
package backup

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const (
	// maxBackups bounds the complete backups of one instance.
	maxBackups = 200
	// maxTogether bounds the backups and restores that run at a time on a node. Others wait.
	maxTogether = 2
	// maxDuration bounds one backup or restore, after its turn has come.
	maxDuration = 12 * time.Hour
	// untilPatience is how long the output of a server may take to contain NewBackup.Until.
	untilPatience = 2 * time.Minute
	// releasePatience is how long a killed agent's successor tries to send the lines of NewBackup.After.
	releasePatience = 5 * time.Minute
)

// The endings of the files of a backup.
const (
	archiveEnd = ".tar.zst"
	recordEnd  = ".json"
	partialEnd = ".partial"
	jobEnd     = ".job"
	// newEnd is added while a record is written.
	newEnd = ".new"
)

// Console is the console of an instance's server.
type Console interface {
	// Running reports whether a server runs.
	Running() bool
	// WriteLine types a line.
	WriteLine(line string) error
	// Mark returns the end of the output, for Await.
	Mark() (offset int64, err error)
	// Await waits until the output after a mark contains a text, or ctx ends.
	Await(ctx context.Context, offset int64, text string) error
}

// Place is the directory of a static instance.
type Place struct {
	Instance   fleet.InstanceID
	Generation int64
	Group      fleet.GroupName
	Name       string
	Console    Console
	// Allowed returns why the directory may not be replaced now.
	Allowed func() error
}

func (p Place) key() string { return string(p.Group) + "/" + p.Name }

// Config configures a Keeper. All fields are required.
type Config struct {
	// Dir is where the backups are. It must belong to the agent.
	Dir string
	// DataDir is the agent's data directory, which also has the static directories.
	DataDir   string
	Workspace *workspace.Builder
	// Aside sets a replaced directory aside, for a day.
	Aside func(dir string, group fleet.GroupName, name string) error
	// Find returns the instance of a directory, with its console, if it is on this node.
	Find func(fleet.InstanceID) (Place, error)
	// Ready is closed when no other agent can use Dir; nil if that is certain. Run waits for it before it
	// removes what a killed agent left.
	Ready <-chan struct{}
	Now   func() time.Time
	Log   *slog.Logger
}

// Keeper makes, lists and restores backups. It is safe for concurrent use.
type Keeper struct {
	cfg     Config
	turns   chan struct{}
	running sync.WaitGroup
	// ctx ends with Run. Jobs begin only while it is set.
	ctx context.Context
	end context.CancelFunc

	mu sync.Mutex
	// all are the complete backups and the one in progress, by directory and ID.
	all map[string]map[string]*kept
	// failed is the last failure of each directory since its last success.
	failed map[string]client.Backup
	// busy are the directories with a backup or a restore in progress.
	busy map[string]bool
	// broken says why Dir cannot be used; nil if it can.
	broken error
	// interrupted are the job files that a killed agent left, and partial its other files.
	interrupted, partial []string
}

// kept is a backup. The keeper's mutex guards it.
type kept struct {
	client.Backup
	// SHA256 is that of the archive, in hex.
	SHA256 string `json:"sha256"`
	// done is closed when the work on it ends; nil if nothing works on it. cancel ends a backup.
	done   chan struct{}
	cancel context.CancelFunc
}

// job is the record of a backup in progress. It outlives the agent.
type job struct {
	Instance   fleet.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	After      []string         `json:"after,omitempty"`
}

// Open returns a keeper with the backups that it finds. If the directory cannot be used, it logs that, and the
// keeper refuses to make backups. Call Run.
func Open(c Config) *Keeper {
	k := &Keeper{cfg: c, turns: make(chan struct{}, maxTogether), all: map[string]map[string]*kept{}, failed: map[string]client.Backup{}, busy: map[string]bool{}}
	k.ctx, k.end = context.WithCancel(context.Background())
	if err := errors.Join(os.MkdirAll(c.Dir, 0o700), k.load()); err != nil {
		c.Log.Error("the directory of backups cannot be used: repair it and restart the agent", "directory", c.Dir, "error", err)
		k.broken = errs.New(errs.Unavailable, "the directory of backups cannot be used: repair it and restart the agent (%s)", causeOf(err))
	}
	k.finishRestores()
	return k
}

// load reads the directories.
func (k *Keeper) load() error {
	groups, err := os.ReadDir(k.cfg.Dir)
	if err != nil {
		return err
	}
	for _, group := range groups {
		if !group.IsDir() {
			continue
		}
		names, err := os.ReadDir(filepath.Join(k.cfg.Dir, group.Name()))
		if err != nil {
			return err
		}
		for _, name := range names {
			key := filepath.Join(group.Name(), name.Name())
			entries, err := os.ReadDir(filepath.Join(k.cfg.Dir, key))
			if err != nil && name.IsDir() {
				return err
			}
			for _, e := range entries {
				k.loadFile(key, filepath.Join(k.cfg.Dir, key, e.Name()))
			}
		}
	}
	return nil
}

// loadFile reads one file. Archives are found by their records.
func (k *Keeper) loadFile(key, path string) {
	id := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	switch filepath.Ext(path) {
	case partialEnd, newEnd:
		k.partial = append(k.partial, path)
	case jobEnd:
		k.interrupted = append(k.interrupted, path)
	case recordEnd:
		archive, err := os.Stat(strings.TrimSuffix(path, recordEnd) + archiveEnd)
		if errors.Is(err, fs.ErrNotExist) { // the agent was killed just before the archive got its name, or after it was deleted
			k.partial = append(k.partial, path)
			return
		}
		b := new(kept)
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if err == nil {
			err = json.Unmarshal(text, b)
		}
		if err == nil && (b.ID != id || archive.Size() != b.Size) {
			err = errors.New("they do not belong together")
		}
		if err != nil {
			k.cfg.Log.Error("a backup cannot be used: look at its archive and its record", "record", path, "error", err)
			return
		}
		b.State = client.BackupComplete
		k.put(key, b)
	}
}

func (k *Keeper) put(key string, b *kept) {
	if k.all[key] == nil {
		k.all[key] = map[string]*kept{}
	}
	k.all[key][b.ID] = b
}

// Run ends what a killed agent left, and works until ctx ends. It waits for the end of the jobs.
func (k *Keeper) Run(ctx context.Context) {
	k.running.Go(func() {
		if k.cfg.Ready != nil {
			select {
			case <-k.cfg.Ready:
			case <-k.ctx.Done():
				return
			}
		}
		for _, path := range k.partial {
			_ = os.Remove(path)
		}
		for _, path := range k.interrupted {
			k.running.Go(func() { k.release(path) })
		}
	})
	<-ctx.Done()
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.running.Wait()
}

// release sends the lines that end the pause of a server, until it has them or is no longer the one that was
// paused. The server may not be adopted yet. path is the job's file.
func (k *Keeper) release(path string) {
	var j job
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		k.cfg.Log.Error("cannot read the record of an interrupted backup: if its server was paused, send it the lines that end this", "record", path, "error", err)
		return
	}
	within := time.Now().Add(releasePatience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		p, err := k.cfg.Find(j.Instance)
		switch {
		case err == nil && p.Generation > j.Generation:
			_ = os.Remove(path) // a later server, which was not paused
			return
		case err == nil && !p.Console.Running():
			err = errs.New(errs.Conflict, "no server runs")
		case err == nil:
			err = write(p.Console, j.After)
		}
		if err == nil {
			_ = os.Remove(path)
			k.cfg.Log.Info("a backup was interrupted: its server writes again", "instance", j.Instance)
			return
		}
		if time.Now().After(within) {
			_ = os.Remove(path)
			k.cfg.Log.Warn("a backup was interrupted, and its server did not get the lines that end it: send them yourself if it runs", "instance", j.Instance, "lines", j.After, "error", err)
			return
		}
		if !pause.Jittered(k.ctx, wait) {
			return // the next agent tries again
		}
	}
}

func write(c Console, lines []string) error {
	for _, line := range lines {
		if err := c.WriteLine(line); err != nil {
			return err
		}
	}
	return nil
}

// dir is the directory of the backups of an instance.
func (k *Keeper) dir(p Place) string { return filepath.Join(k.cfg.Dir, string(p.Group), p.Name) }

// path is a file of a backup.
func (k *Keeper) path(p Place, id, end string) string { return filepath.Join(k.dir(p), id+end) }

// List returns the backups of a directory and its last failure, the newest first. Unavailable if the directory
// of backups cannot be read.
func (k *Keeper) List(p Place) (client.Backups, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := client.Backups{Backups: []client.Backup{}}
	for _, b := range k.all[p.key()] {
		out.Backups = append(out.Backups, k.shown(p, b))
	}
	if b, ok := k.failed[p.key()]; ok {
		out.Backups = append(out.Backups, b)
	}
	slices.SortFunc(out.Backups, func(a, b client.Backup) int { return cmp.Or(b.Begun.Compare(a.Begun), cmp.Compare(b.ID, a.ID)) })
	return out, k.broken
}

// shown is a backup as callers see it. mu is held.
func (k *Keeper) shown(p Place, b *kept) client.Backup {
	out := b.Backup
	if out.State != client.BackupRunning {
		out.Path = k.path(p, b.ID, archiveEnd)
	}
	return out
}

// Get returns a backup. It waits until the work on it ends, or ctx does. NotFound if it does not exist.
func (k *Keeper) Get(ctx context.Context, p Place, id string) (client.Backup, error) {
	for {
		k.mu.Lock()
		b, ok := k.all[p.key()][id]
		if !ok {
			last, failed := k.failed[p.key()]
			k.mu.Unlock()
			if failed && last.ID == id {
				return last, nil
			}
			return client.Backup{}, noBackup(p, id)
		}
		out, done := k.shown(p, b), b.done
		k.mu.Unlock()
		if done == nil {
			return out, nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return out, nil
		}
	}
}

func noBackup(p Place, id string) error {
	return &errs.Error{Kind: errs.NotFound, Field: "backup", Message: "instance " + p.Name + " has no backup " + clip(id) + ": list its backups"}
}

// clip shortens a name for a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Delete removes a complete backup, cancels one that runs, or forgets a failed one. Errors are those of
// client.DeleteBackup.
func (k *Keeper) Delete(p Place, id string, dryRun bool) (client.Backup, error) {
	out, b, err := k.take(p, id, dryRun)
	if err != nil || b == nil {
		return out, err
	}
	if err := k.remove(p, id); err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.put(p.key(), b)
		return out, err
	}
	return out, nil
}

// take takes a backup from the list, to remove it. It returns nil if nothing is to be removed.
func (k *Keeper) take(p Place, id string, dryRun bool) (out client.Backup, gone *kept, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.all[p.key()][id]
	switch last, failed := k.failed[p.key()]; {
	case !ok && failed && last.ID == id:
		if !dryRun {
			delete(k.failed, p.key())
		}
		return last, nil, nil
	case !ok:
		return out, nil, noBackup(p, id)
	case b.State == client.BackupRestoring:
		return out, nil, errs.New(errs.Conflict, "backup %s is being restored: wait until that has ended", id)
	case dryRun:
		return k.shown(p, b), nil, nil
	case b.done != nil:
		b.cancel()
		return k.shown(p, b), nil, nil
	}
	delete(k.all[p.key()], id)
	return k.shown(p, b), b, nil
}

// remove removes the files of a backup, the archive first: a record without an archive is not a backup.
func (k *Keeper) remove(p Place, id string) error {
	for _, end := range []string{archiveEnd, recordEnd} {
		if err := os.Remove(k.path(p, id, end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.WrapAs(errs.Unavailable, "backup.remove", err)
		}
	}
	return nil
}

// begin reserves a directory for one job. Conflict if it has another one, or the agent ends. mu is held.
func (k *Keeper) begin(p Place) error {
	switch {
	case k.broken != nil:
		return k.broken
	case k.busy[p.key()]:
		return errs.New(errs.Conflict, "a backup or a restore of instance %s is in progress: wait until it has ended", p.Name)
	case k.ctx.Err() != nil:
		return errs.New(errs.Unavailable, "the node's agent ends: try again when it has started")
	}
	k.busy[p.key()] = true
	return nil
}

// work runs a job when it has its turn.
func (k *Keeper) work(ctx context.Context, do func(ctx context.Context) error) error {
	select {
	case k.turns <- struct{}{}:
		defer func() { <-k.turns }()
	case <-ctx.Done():
		return k.endOf(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil {
		return k.endOf(limited)
	}
	return err
}

// endOf says why a job ended before its work did.
func (k *Keeper) endOf(ctx context.Context) error {
	switch {
	case k.ctx.Err() != nil:
		return errs.New(errs.Canceled, "the node's agent ended")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errs.New(errs.Canceled, "it took longer than %s", maxDuration)
	}
	return errs.New(errs.Canceled, "it was canceled")
}

// Kept returns the number of complete backups and the size of their archives in bytes.
func (k *Keeper) Kept() (backups int, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, all := range k.all {
		for _, b := range all {
			if b.State != client.BackupRunning {
				backups, bytes = backups+1, bytes+b.Size
			}
		}
	}
	return backups, bytes
}

// newID returns the ID of a backup: when it began, and something random.
func newID(now time.Time) string {
	return now.UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:4])
}

// causeOf explains an error of a job for people.
func causeOf(err error) string {
	if text := errs.MessageOf(err); text != errs.MessageOf(nil) {
		return text
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fleet.ReasonDiskFull.Text()
	case errors.Is(err, unix.EXDEV):
		return "the static directories are on another filesystem than the agent's data: unpack the archive by hand"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return "the filesystem of the static directories cannot exchange two directories: unpack the archive by hand"
	}
	return clip(err.Error())
}
