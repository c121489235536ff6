package fileedit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const (
	// DefaultMaxBytes is the default of Config.MaxBytes.
	DefaultMaxBytes = 2 << 30
	// maxVersions bounds the versions of a node, maxListed those of an answer.
	maxVersions, maxListed = 5000, 200
	// keptFor is how long a version is kept.
	keptFor = 24 * time.Hour
	// maxTree bounds the entries of a directory that is deleted and kept.
	maxTree = 1_000_000
	// lockShards is the number of locks that the directories share.
	lockShards = 64
	// opWrite is the Op of a version that a write replaced.
	opWrite = "write"
	// stagingDir holds contents that arrive, and directories that are being destroyed. No group has
	// this name.
	stagingDir = ".staging"
	// contentName and metaName are the files of a version. The content appears last.
	contentName, metaName = "content", "version.json"
)

// Config configures an Editor. Dir and Log are required.
type Config struct {
	// Dir is a directory of the agent's own, which no instance may enter.
	Dir string
	// MaxBytes bounds the kept versions of the node, in bytes. 0 means DefaultMaxBytes.
	MaxBytes int64
	// Now reads the wall clock. Nil means time.Now.
	Now func() time.Time
	// Free returns the free bytes of a directory's disk. Nil means what the kernel says.
	Free func(dir string) (int64, error)
	Log  *slog.Logger
}

// Editor changes files and keeps their previous versions. It is safe for concurrent use.
type Editor struct {
	cfg     Config
	dir     string
	staging *os.Root
	stage0  *os.File
	seed    maphash.Seed
	locks   [lockShards]sync.Mutex
	// wake tells Run that the versions changed.
	wake chan struct{}

	mu    sync.Mutex
	all   []*version // the oldest first
	bytes int64
}

// version is the record of a kept content.
type version struct {
	ID string `json:"id"`
	// Group and Name are those of the instance's directory.
	Group string    `json:"group"`
	Name  string    `json:"name"`
	Path  string    `json:"path"`
	Dir   bool      `json:"dir,omitempty"`
	Size  int64     `json:"size"`
	Mode  uint32    `json:"mode"`
	Op    string    `json:"op"`
	At    time.Time `json:"at"`
}

// Open returns an editor. It removes contents that did not arrive completely before the agent was
// killed, and reads the list of versions.
func Open(c Config) (*Editor, error) {
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Free == nil {
		c.Free = free
	}
	e := &Editor{cfg: c, dir: c.Dir, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1)}
	at := filepath.Join(c.Dir, stagingDir)
	if err := errors.Join(workspace.RemoveAll(at), os.MkdirAll(at, 0o700), os.Chmod(c.Dir, 0o700)); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "fileedit.Open", err)
	}
	var err error
	if e.staging, err = os.OpenRoot(at); err == nil {
		e.stage0, err = e.staging.Open(".")
	}
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "fileedit.Open", err)
	}
	return e, errs.WrapAs(errs.Unavailable, "fileedit.Open", e.load())
}

// Close releases the directory.
func (e *Editor) Close() { _, _ = e.stage0.Close(), e.staging.Close() }

func (e *Editor) stagingFD() int { return int(e.stage0.Fd()) }

// load reads the records of the versions, and removes those without content.
func (e *Editor) load() error {
	found, err := filepath.Glob(filepath.Join(e.dir, "*", "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range found {
		if strings.HasPrefix(dir, filepath.Join(e.dir, stagingDir)+"/") {
			continue
		}
		v := new(version)
		b, err := os.ReadFile(filepath.Join(dir, metaName))
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err == nil && e.versionDir(v) != dir {
			err = fmt.Errorf("the record of %s is for another version", dir)
		}
		if err == nil {
			_, err = os.Lstat(filepath.Join(dir, contentName))
		}
		if err != nil { // the agent was killed before the content was there: the file was not changed
			if err := workspace.RemoveAll(dir); err != nil {
				e.cfg.Log.Warn("cannot remove an incomplete file version", "error", err)
			}
			continue
		}
		e.all = append(e.all, v)
		e.bytes += v.Size
	}
	slices.SortFunc(e.all, func(a, b *version) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

func (e *Editor) versionDir(v *version) string { return filepath.Join(e.dir, v.Group, v.Name, v.ID) }

// lock makes changes of one directory wait for each other. It returns the function that unlocks.
func (e *Editor) lock(key string) func() {
	l := &e.locks[maphash.String(e.seed, key)%lockShards]
	l.Lock()
	return l.Unlock
}

// keepFile copies a file to a new version.
func (e *Editor) keepFile(p Place, at *target, op string) (_ *version, err error) {
	if err := e.room(e.dir, at.info.Size()); err != nil {
		return nil, err
	}
	v, dir, err := e.begin(p, at, op, at.info.Size())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
			err = changeError("the previous content", err)
		}
	}()
	partial := filepath.Join(dir, "partial")
	to, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = at.file.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(to, io.LimitReader(at.file, at.info.Size())) // clones blocks where the filesystem can
	}
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return nil, err
	}
	if err = errors.Join(os.Rename(partial, filepath.Join(dir, contentName)), syncDir(dir)); err != nil {
		return nil, err
	}
	e.add(v)
	return v, nil
}

// keepDir moves a directory to a new version.
func (e *Editor) keepDir(p Place, at *target, size int64) (*version, error) {
	v, dir, err := e.begin(p, at, client.FileDelete, size)
	if err != nil {
		return nil, err
	}
	to, err := os.Open(dir)
	if err == nil {
		defer to.Close()
		err = unix.Renameat(at.fd(), at.base, int(to.Fd()), contentName)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		if errors.Is(err, unix.EXDEV) {
			return nil, errs.New(errs.Conflict, "%s cannot be kept, because the static directories are on another filesystem than the agent's data: delete its files one by one, or delete it with keep=false", at.path)
		}
		return nil, changeError(at.path, err)
	}
	e.add(v) // before anything can fail: the content is only here now
	return v, changeError(at.path, to.Sync())
}

// begin creates the directory and the record of a version.
func (e *Editor) begin(p Place, at *target, op string, size int64) (*version, string, error) {
	now := e.cfg.Now().UTC()
	v := &version{
		ID: fmt.Sprintf("%016x%s", now.UnixNano(), randomSuffix()), Group: p.Group, Name: p.Name, Path: at.path,
		Dir: at.info.IsDir(), Size: size, Mode: uint32(at.info.Mode().Perm()), Op: op, At: now,
	}
	dir := e.versionDir(v)
	b, err := json.Marshal(v)
	if err == nil {
		e.mu.Lock() // delete removes empty directories
		err = os.MkdirAll(dir, 0o700)
		e.mu.Unlock()
	}
	if err == nil {
		err = writeSynced(filepath.Join(dir, metaName), b)
	}
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, "", changeError("the previous content", err)
	}
	return v, dir, nil
}

// add lists a version, and removes the oldest ones beyond the bounds.
func (e *Editor) add(v *version) {
	e.mu.Lock()
	e.all = append(e.all, v)
	e.bytes += v.Size
	var over []*version
	for e.bytes > e.cfg.MaxBytes && len(e.all) > 1 || len(e.all) > maxVersions {
		over = append(over, e.all[0])
		e.bytes -= e.all[0].Size
		e.all = e.all[1:]
	}
	e.mu.Unlock()
	e.delete(over)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// forget removes a version of a change that failed.
func (e *Editor) forget(v *version) {
	if v == nil {
		return
	}
	e.drop(func(other *version) bool { return other == v })
}

// drop removes the versions that a condition selects.
func (e *Editor) drop(of func(*version) bool) {
	var gone []*version
	e.mu.Lock()
	e.all = slices.DeleteFunc(e.all, func(v *version) bool {
		if !of(v) {
			return false
		}
		gone = append(gone, v)
		e.bytes -= v.Size
		return true
	})
	e.mu.Unlock()
	e.delete(gone)
}

func (e *Editor) delete(all []*version) {
	for _, v := range all {
		dir := e.versionDir(v)
		if err := workspace.RemoveAll(dir); err != nil {
			e.cfg.Log.Warn("cannot remove a file version that is no longer kept: the next start of the agent tries again", "error", err)
			continue
		}
		e.mu.Lock()
		_ = os.Remove(filepath.Dir(dir)) // unless it has others
		_ = os.Remove(filepath.Dir(filepath.Dir(dir)))
		e.mu.Unlock()
	}
}

// Run removes versions when their time is over, until ctx ends.
func (e *Editor) Run(ctx context.Context) {
	for {
		wait := e.expire()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-e.wake:
			timer.Stop()
		}
	}
}

// expire removes the versions whose time is over, and returns when the next one's is.
func (e *Editor) expire() time.Duration {
	now := e.cfg.Now()
	e.drop(func(v *version) bool { return !now.Before(v.At.Add(keptFor)) })
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return keptFor
	}
	return min(max(e.all[0].At.Add(keptFor).Sub(now), time.Second), keptFor)
}

// Kept returns the number of versions and their bytes.
func (e *Editor) Kept() (versions int, bytes int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all), e.bytes
}

// Versions lists the versions of a path and of all paths below it, the newest first. "" lists all of
// the directory. Errors are those of Viewer.Read for the form of the path.
func (e *Editor) Versions(p Place, name string) (client.FileVersions, error) {
	if err := files.CheckPath(name); err != nil {
		return client.FileVersions{}, err
	}
	name = path.Clean(name)
	out := client.FileVersions{Versions: []client.FileVersion{}}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range slices.Backward(e.all) {
		if v.Group != p.Group || v.Name != p.Name || name != "." && v.Path != name && !strings.HasPrefix(v.Path, name+"/") {
			continue
		}
		if len(out.Versions) == maxListed {
			out.More = true
			break
		}
		out.Versions = append(out.Versions, client.FileVersion{
			ID: v.ID, Path: v.Path, Dir: v.Dir, Size: v.Size, At: v.At, Until: v.At.Add(keptFor), Op: v.Op,
		})
	}
	return out, nil
}

// restore writes a version back to its path. It keeps what the version replaces. A directory is
// restored only where nothing exists, and its version ends.
func (e *Editor) restore(ctx context.Context, p Place, o client.FileEdit) (done client.FileChange, err error) {
	v := e.find(p, o.Version)
	if v == nil {
		return done, &errs.Error{Kind: errs.NotFound, Field: "version", Message: "does not exist: list the versions of the file; they are kept for a day, and the oldest ones are removed earlier when there are too many"}
	}
	if v.Dir {
		return e.restoreDir(p, v, o)
	}
	w := client.FileWrite{Path: v.Path, IfMatch: o.IfMatch, Discard: o.Discard, DryRun: o.DryRun}
	if done, err = e.write(p, w, nil); err != nil || o.DryRun {
		return done, err
	}
	from, err := os.Open(filepath.Join(e.versionDir(v), contentName))
	if err != nil {
		return done, changeError(v.Path, err)
	}
	defer from.Close()
	s, err := e.stage(ctx, from, e.cfg.MaxBytes)
	if err != nil {
		return done, err
	}
	defer s.discard()
	s.mode, s.op = os.FileMode(v.Mode).Perm(), client.FileRestore
	return e.write(p, w, s)
}

func (e *Editor) restoreDir(p Place, v *version, o client.FileEdit) (client.FileChange, error) {
	at, err := p.find(v.Path, false, !o.DryRun)
	if err != nil {
		return client.FileChange{}, err
	}
	defer at.close()
	done := client.FileChange{Path: at.path, Created: true}
	if err := at.compare(o.IfMatch); err != nil {
		return done, err
	}
	switch {
	case at.info != nil:
		return done, errs.New(errs.AlreadyExists, "%s exists, and a directory is restored only where nothing is: rename or delete it first", at.path)
	case o.DryRun:
		return done, nil
	}
	from, err := os.Open(e.versionDir(v))
	if err != nil {
		return done, changeError(at.path, err)
	}
	defer from.Close()
	if err := renameNew(int(from.Fd()), contentName, at.fd(), at.base); err != nil {
		return done, changeError(at.path, err)
	}
	err = at.flush()
	e.forget(v)
	return done, err
}

// find returns a version of a directory, nil if it does not exist.
func (e *Editor) find(p Place, id string) *version {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range e.all {
		if v.ID == id && v.Group == p.Group && v.Name == p.Name {
			return v
		}
	}
	return nil
}

// treeSize returns the bytes of a directory's files. It follows no links.
func (e *Editor) treeSize(at *target) (size int64, err error) {
	seen := 0
	err = fs.WalkDir(at.root.FS(), at.path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > maxTree {
			return errs.New(errs.TooLarge, "%s has more than %d entries: delete it with keep=false", at.path, maxTree)
		}
		if d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				size += fi.Size()
			}
		}
		return nil
	})
	return size, changeError(at.path, err)
}

// destroy moves a directory out of the instance's directory and removes it.
func (e *Editor) destroy(at *target) error {
	name := randomSuffix()
	err := unix.Renameat(at.fd(), at.base, e.stagingFD(), name)
	if errors.Is(err, unix.EXDEV) {
		return changeError(at.path, at.root.RemoveAll(at.path))
	}
	if err != nil {
		return changeError(at.path, err)
	}
	return changeError(at.path, workspace.RemoveAll(filepath.Join(e.dir, stagingDir, name)))
}

func (e *Editor) tooLargeToKeep(name string, size int64) error {
	return errs.New(errs.TooLarge, "%s has %d bytes, and at most %d bytes of previous contents are kept on a node: send keep=false to lose it", clip(name), size, e.cfg.MaxBytes)
}

func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// randomSuffix makes a name unique.
func randomSuffix() string { return strings.ToLower(rand.Text()[:10]) }
