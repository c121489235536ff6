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
	Now  func() time.Time
	Log  *slog.Logger
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
	// interrupted are backups that a killed agent left behind.
	interrupted []job
}

// kept is a backup. The keeper's mutex guards it.
type kept struct {
	client.Backup
	// SHA256 is that of the archive, in hex.
	SHA256 string `json:"sha256"`
	// done is closed when the work on it ends; nil if nothing works on it.
	done chan struct{}
}

// job is the record of a backup in progress. It outlives the agent.
type job struct {
	Instance   fleet.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	After      []string         `json:"after,omitempty"`
}

// Open returns a keeper. It reads the list of backups, and removes what a killed agent left of one that was
// not complete. Call Run.
func Open(c Config) (*Keeper, error) {
	k := &Keeper{cfg: c, turns: make(chan struct{}, maxTogether), all: map[string]map[string]*kept{}, failed: map[string]client.Backup{}, busy: map[string]bool{}}
	k.ctx, k.end = context.WithCancel(context.Background())
	if err := errors.Join(os.MkdirAll(c.Dir, 0o700), k.load()); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "backup.Open", err)
	}
	k.finishRestores()
	return k, nil
}

// load reads the directories.
func (k *Keeper) load() error {
	dirs, err := filepath.Glob(filepath.Join(k.cfg.Dir, "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not a directory of backups
		}
		key := filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir)
		for _, e := range entries {
			k.loadFile(key, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// loadFile reads one file. Archives are found by their records.
func (k *Keeper) loadFile(key, path string) {
	id := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	switch filepath.Ext(path) {
	case partialEnd:
		_ = os.Remove(path)
	case jobEnd:
		var j job
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &j) == nil && len(j.After) > 0 {
			k.interrupted = append(k.interrupted, j)
		}
		_ = os.Remove(path) // an agent that is killed again before it sent the lines does not repeat them
	case recordEnd:
		b := new(kept)
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, b)
		}
		var archive fs.FileInfo
		if err == nil {
			archive, err = os.Stat(strings.TrimSuffix(path, recordEnd) + archiveEnd)
		}
		if errors.Is(err, fs.ErrNotExist) { // the agent was killed just before the archive got its name
			_ = os.Remove(path)
			return
		}
		if err != nil || b.ID != id || archive.Size() != b.Size {
			k.cfg.Log.Error("a backup cannot be used: its archive and its record do not belong together", "record", path, "error", err)
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
	for _, j := range k.interrupted {
		k.running.Go(func() { k.release(j) })
	}
	<-ctx.Done()
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.running.Wait()
}

// release sends the lines that end the pause of a server, for a backup that a killed agent left. The server
// may not be adopted yet.
func (k *Keeper) release(j job) {
	ctx, cancel := context.WithTimeout(k.ctx, releasePatience)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		p, err := k.cfg.Find(j.Instance)
		if err == nil && (p.Generation != j.Generation || !p.Console.Running()) {
			err = errs.New(errs.Conflict, "its server has not been adopted")
		}
		if err == nil {
			err = write(p.Console, j.After)
		}
		if err == nil {
			k.cfg.Log.Info("a backup was interrupted: its server writes again", "instance", j.Instance)
			return
		}
		if !pause.Jittered(ctx, wait) {
			k.cfg.Log.Warn("a backup was interrupted, and its server did not get the lines that end it: send them yourself if it runs", "instance", j.Instance, "lines", j.After, "error", err)
			return
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

// List returns the backups of a directory and its last failure, the newest first.
func (k *Keeper) List(p Place) client.Backups {
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
	return out
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

// Delete removes a complete backup, or forgets a failed one. Errors are those of client.DeleteBackup.
func (k *Keeper) Delete(p Place, id string, dryRun bool) (client.Backup, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.all[p.key()][id]
	switch last, failed := k.failed[p.key()]; {
	case !ok && failed && last.ID == id:
		if !dryRun {
			delete(k.failed, p.key())
		}
		return last, nil
	case !ok:
		return client.Backup{}, noBackup(p, id)
	case b.done != nil:
		return client.Backup{}, errs.New(errs.Conflict, "backup %s is %s: wait until that has ended", id, strings.ToLower(string(b.State)))
	case dryRun:
		return k.shown(p, b), nil
	}
	out := k.shown(p, b)
	return out, k.remove(p, b)
}

// remove removes the files of a backup, the record first: an archive without a record is not a backup. mu is held.
func (k *Keeper) remove(p Place, b *kept) error {
	err := os.Remove(k.path(p, b.ID, recordEnd))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		delete(k.all[p.key()], b.ID)
		err = os.Remove(k.path(p, b.ID, archiveEnd))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errs.WrapAs(errs.Unavailable, "backup.remove", err)
}

// begin reserves a directory for one job. Conflict if it has another one, or the agent ends. mu is held.
func (k *Keeper) begin(p Place) error {
	switch {
	case k.busy[p.key()]:
		return errs.New(errs.Conflict, "a backup or a restore of instance %s is in progress: wait until it has ended", p.Name)
	case k.ctx.Err() != nil:
		return errs.New(errs.Unavailable, "the node's agent ends: try again when it has started")
	}
	k.busy[p.key()] = true
	return nil
}

// work runs a job when it has its turn.
func (k *Keeper) work(do func(ctx context.Context) error) error {
	select {
	case k.turns <- struct{}{}:
		defer func() { <-k.turns }()
	case <-k.ctx.Done():
		return errs.New(errs.Canceled, "the node's agent ended")
	}
	err := do(k.ctx)
	if k.ctx.Err() != nil && err != nil {
		return errs.New(errs.Canceled, "the node's agent ended")
	}
	return err
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
