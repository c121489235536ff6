// Package fileedit changes the files of static instances' directories, and keeps what a change
// removes for a day.
//
// Invariants:
//   - A write replaces the whole file or nothing, also when the agent is killed: the new content is
//     written and flushed in a directory of the agent, and then renamed.
//   - It changes nothing outside the directory, also if symlinks change meanwhile: each change acts
//     on one name in an open directory that was found below the instance's directory.
//   - It changes no file of the agent, and writes to no device, pipe or socket. It never writes into
//     an existing file, so other names of the file (hard links) keep the old content.
//   - The previous content is kept before it is removed. If it cannot be kept, nothing changes.
//   - A new file belongs to the instance's user. A replaced file keeps its owner and mode, without
//     the bits that change the user of a program.
//   - Changes of one directory follow each other, so of several writers with one ETag one succeeds.
package fileedit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const (
	// maxName is the maximum length of a file name in bytes.
	maxName = 255
	// maxDepth is the maximum number of names in a path.
	maxDepth = 64
	// newDirMode and newFileMode are the modes of new directories and files.
	newDirMode, newFileMode = 0o750, 0o640
	// masked is what readers see instead of a secret.
	masked = "***"
	// checkEvery is how much is written before the free space is examined again, in bytes.
	checkEvery = 8 << 20
	// MinFree is how much of a disk stays free, in bytes.
	MinFree = 256 << 20
)

// Place is the directory of a static instance.
type Place struct {
	files.Viewer
	// Group and Name are those of the directory.
	Group, Name string
	// User is the user that new files belong to; empty means the owner of their directory.
	User string
	Plan fleet.Plan
	// Instance is whose directory it is, and Generation the latest one that was prepared in it.
	Instance   fleet.InstanceID
	Generation int64
	// Allowed returns why the directory may not be changed now; nil allows every change.
	Allowed func() error
}

func (p Place) allowed() error {
	if p.Allowed == nil {
		return nil
	}
	return p.Allowed()
}

// key identifies the directory across instances and generations.
func (p Place) key() string { return p.Group + "/" + p.Name }

// Write replaces or creates a file with the content of body, and missing directories above it. Errors
// are those of client.WriteFile.
func (e *Editor) Write(ctx context.Context, p Place, w client.FileWrite, body io.Reader) (client.FileChange, error) {
	if err := checkNew("path", w.Path); err != nil {
		return client.FileChange{}, err
	}
	if done, err := e.lockedWrite(p, w, nil); err != nil || w.DryRun { // fail before the body is read
		return done, err
	}
	staged, err := e.stage(ctx, body, client.MaxUpload)
	if err != nil {
		return client.FileChange{}, err
	}
	defer staged.discard()
	return e.lockedWrite(p, w, staged)
}

func (e *Editor) lockedWrite(p Place, w client.FileWrite, staged *staged) (client.FileChange, error) {
	defer e.lock(p.key())()
	return e.write(p, w, staged)
}

// write performs a write with a staged content. Without one it only checks the write.
func (e *Editor) write(p Place, w client.FileWrite, staged *staged) (done client.FileChange, err error) {
	if err := p.allowed(); err != nil { // again after an upload, which may take long
		return done, err
	}
	at, err := p.find(w.Path, true, staged != nil)
	if err != nil {
		return done, err
	}
	defer at.close()
	done = client.FileChange{Path: at.path, Created: at.info == nil, Replaced: workspace.Overwrites(p.Plan, at.path)}
	switch {
	case at.info != nil && w.Only:
		return done, errs.New(errs.AlreadyExists, "%s exists already", at.path)
	case at.info != nil && at.info.IsDir():
		return done, pathError(errs.Conflict, "%s is a directory", at.path)
	}
	if err := at.compare(w.IfMatch); err != nil {
		return done, err
	}
	if at.info != nil && !w.Discard && at.info.Size() > e.cfg.MaxBytes {
		return done, e.tooLargeToKeep(at.path, at.info.Size())
	}
	if err := e.room(p.Dir, 0); err != nil || staged == nil {
		return done, err
	}
	if err := p.hidesNothing(at, staged); err != nil {
		return done, err
	}
	if err := staged.own(at, p.User); err != nil {
		return done, err
	}
	var kept *version
	if at.info != nil && !w.Discard {
		if kept, err = e.keepFile(p, at, staged.op); err != nil {
			return done, err
		}
		done.Version = kept.ID
	}
	if err := staged.moveTo(at); err != nil {
		if !staged.moved {
			e.forget(kept)
		}
		return done, err
	}
	fi, err := staged.file.Stat()
	if err != nil {
		return done, changeError(at.path, err)
	}
	done.Size, done.ETag = fi.Size(), files.ETag(fi)
	return done, nil
}

// hidesNothing refuses a text that has the mask of a secret where the file has the secret: its writer
// has read the masked text, and would destroy the value.
func (p Place) hidesNothing(at *target, s *staged) error {
	if at.info == nil || s.size > files.MaxBytes || at.info.Size() > files.MaxBytes {
		return nil // readers see at most files.MaxBytes
	}
	text := make([]byte, s.size)
	if _, err := s.file.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return changeError(at.path, err)
	}
	if !bytes.Contains(text, []byte(masked)) {
		return nil
	}
	before, err := io.ReadAll(io.NewSectionReader(at.file, 0, files.MaxBytes))
	if err != nil {
		return changeError(at.path, err)
	}
	if p.Mask.Text(string(before)) == string(before) {
		return nil
	}
	return errs.New(errs.Conflict, "%s has secret values, which you see as %s, and your text has %s: it would destroy them. Write the values, or change the template or the variables of the group", at.path, masked, masked)
}

// Edit performs one operation. Errors are those of client.EditFile.
func (e *Editor) Edit(ctx context.Context, p Place, o client.FileEdit) (client.FileChange, error) {
	defer e.lock(p.key())()
	if err := p.allowed(); err != nil {
		return client.FileChange{}, err
	}
	switch o.Op {
	case client.FileMkdir:
		return e.mkdir(p, o)
	case client.FileRename:
		return e.rename(p, o)
	case client.FileDelete:
		return e.remove(p, o)
	case client.FileRestore:
		return e.restore(ctx, p, o)
	}
	return client.FileChange{}, errs.Field("op", "must be mkdir, rename, delete or restore, is %q", o.Op)
}

// mkdir creates a directory and those above it.
func (e *Editor) mkdir(p Place, o client.FileEdit) (client.FileChange, error) {
	name := strings.TrimSuffix(o.Path, "/")
	if err := checkNew("path", name); err != nil {
		return client.FileChange{}, err
	}
	at, err := p.find(name, false, !o.DryRun)
	if err != nil {
		return client.FileChange{}, err
	}
	defer at.close()
	done := client.FileChange{Path: at.path, Created: true}
	if at.info != nil {
		return done, errs.New(errs.AlreadyExists, "%s exists already", at.path)
	}
	if err := e.room(p.Dir, 0); err != nil || o.DryRun {
		return done, err
	}
	if err := unix.Mkdirat(at.fd(), at.base, newDirMode); err != nil {
		return done, changeError(at.path, err)
	}
	if uid, gid, ok := ownerIn(at.parent, p.User); ok {
		if err := unix.Fchownat(at.fd(), at.base, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return done, changeError(at.path, err)
		}
	}
	return done, at.flush()
}

// rename moves a file, a link, or a directory with its content. It replaces nothing.
func (e *Editor) rename(p Place, o client.FileEdit) (client.FileChange, error) {
	to := strings.TrimSuffix(o.To, "/")
	if err := checkNew("to", to); err != nil {
		return client.FileChange{}, err
	}
	from, err := p.existing(o)
	if err != nil {
		return client.FileChange{}, err
	}
	defer from.close()
	at, err := p.find(to, false, !o.DryRun)
	if err != nil {
		return client.FileChange{}, named("to", err)
	}
	defer at.close()
	done := client.FileChange{Path: at.path, Created: true, Replaced: workspace.Overwrites(p.Plan, at.path)}
	switch {
	case at.info != nil:
		return done, errs.New(errs.AlreadyExists, "%s exists already: delete it first, or choose another name", at.path)
	case strings.HasPrefix(at.path, from.path+"/"):
		return done, errs.Field("to", "is inside %s, which moves", from.path)
	case o.DryRun:
		return done, nil
	}
	if err := renameNew(from.fd(), from.base, at.fd(), at.base); err != nil {
		return done, changeError(at.path, err)
	}
	if fi, err := at.stat(); err == nil {
		done.Size, done.ETag = sizeOf(fi), files.ETag(fi)
	}
	return done, errors.Join(from.flush(), at.flush())
}

// remove deletes a file, a link, or a directory with its content. It keeps files and directories.
func (e *Editor) remove(p Place, o client.FileEdit) (client.FileChange, error) {
	at, err := p.existing(o)
	if err != nil {
		return client.FileChange{}, err
	}
	defer at.close()
	done := client.FileChange{Path: at.path}
	mode := at.info.Mode()
	keep := !o.Discard && (mode.IsDir() || mode.IsRegular())
	size := at.info.Size()
	if keep && mode.IsDir() {
		if size, err = e.treeSize(at); err != nil {
			return done, err
		}
	}
	switch {
	case keep && size > e.cfg.MaxBytes:
		return done, e.tooLargeToKeep(at.path, size)
	case o.DryRun:
		return done, nil
	case keep && mode.IsDir():
		kept, err := e.keepDir(p, at, size)
		if err == nil {
			done.Version, err = kept.ID, at.flush()
		}
		return done, err
	case mode.IsDir(): // out of the way first, so that it disappears at once
		if err := e.destroy(at); err != nil {
			return done, err
		}
		return done, at.flush()
	}
	var kept *version
	if keep {
		if kept, err = e.keepFile(p, at, client.FileDelete); err != nil {
			return done, err
		}
		done.Version = kept.ID
	}
	if err := unix.Unlinkat(at.fd(), at.base, 0); err != nil {
		e.forget(kept)
		return done, changeError(at.path, err)
	}
	return done, at.flush()
}

// existing finds the file or directory that an operation moves or deletes, without following a link.
func (p Place) existing(o client.FileEdit) (*target, error) {
	name := strings.TrimSuffix(o.Path, "/")
	if name == "" || path.Clean(name) == "." {
		return nil, pathError(errs.Malformed, "must name a file or directory in the instance's directory, not the directory itself")
	}
	at, err := p.find(name, false, false)
	if err != nil {
		return nil, err
	}
	if at.info == nil {
		err = pathError(errs.NotFound, "%s does not exist in the instance's directory", clip(name))
	} else {
		err = at.compare(o.IfMatch)
	}
	if err != nil {
		at.close()
		return nil, err
	}
	return at, nil
}

// target is one name in an open directory of an instance.
type target struct {
	root *os.Root
	// parent is the open directory; nil if it does not exist and was not to be created.
	parent *os.File
	base   string
	// path is the real path below the instance's directory.
	path string
	// info describes the file; nil if it does not exist. For a link, it is the link's own.
	info fs.FileInfo
	// file is the open file, if info is that of a regular file or directory.
	file *os.File
}

func (t *target) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
	if t.parent != nil {
		_ = t.parent.Close()
	}
	_ = t.root.Close()
}

func (t *target) fd() int { return int(t.parent.Fd()) }

// flush makes a change of the directory survive a power failure.
func (t *target) flush() error { return changeError(t.path, t.parent.Sync()) }

func (t *target) stat() (fs.FileInfo, error) { return t.root.Lstat(t.path) }

// compare checks the ETag that a caller requires.
func (t *target) compare(etag string) error {
	info := t.info
	if info != nil && info.Mode()&fs.ModeSymlink != 0 {
		if to, err := t.root.Stat(t.path); err == nil {
			info = to // readers see what a link leads to
		}
	}
	switch {
	case etag == "", etag == "*" && info != nil, info != nil && etag == files.ETag(info):
		return nil
	case info == nil:
		return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: clip(t.path) + " does not exist now"}
	}
	return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: clip(t.path) + " has changed since you read it: read it again"}
}

// find opens the directory of a path, and the file in it. With follow it follows a link to the file.
// With create it creates the missing directories.
func (p Place) find(name string, follow, create bool) (_ *target, err error) {
	if err := files.CheckPath(name); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return nil, pathError(errs.NotFound, "does not exist: the instance has no directory now")
	}
	t := &target{root: root}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	name = path.Clean(name)
	if fi, err := root.Lstat(name); follow && err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		f, _, real, err := p.OpenIn(root, name)
		if err != nil {
			return nil, err
		}
		_ = f.Close()
		name = real
	}
	t.base, t.path = path.Base(name), name
	if t.parent, err = p.openDir(root, path.Dir(name), create); err != nil || t.parent == nil {
		return t, err
	}
	dir, err := files.RealPath(root, t.parent)
	if err != nil {
		return nil, files.OpenError(name, err)
	}
	if t.path = path.Join(dir, t.base); files.IsAgentPath(t.path) {
		return nil, pathError(errs.NotFound, "%s does not exist in the instance's directory", clip(name))
	}
	fi, err := root.Lstat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, nil
	case err != nil:
		return nil, files.OpenError(name, err)
	case !fi.IsDir() && !fi.Mode().IsRegular() && follow: // a device, pipe or socket, or a link since then
		return nil, pathError(errs.Conflict, "%s is not a regular file", clip(name))
	case !fi.IsDir() && !fi.Mode().IsRegular():
		t.info = fi
		return t, nil
	}
	var at string
	if t.file, t.info, at, err = p.OpenIn(root, t.path); err != nil {
		return nil, err
	}
	if at != t.path || !os.SameFile(fi, t.info) {
		return nil, errs.New(errs.Conflict, "%s changed meanwhile: try again", clip(name))
	}
	return t, nil
}

// openDir opens a directory. If it does not exist it creates it, or returns nil without create.
func (p Place) openDir(root *os.Root, dir string, create bool) (*os.File, error) {
	at := "."
	for _, part := range strings.Split(dir, "/") {
		at = path.Join(at, part)
		_, err := root.Stat(at)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return nil, files.OpenError(dir, err)
		}
		if _, err := root.Lstat(at); err == nil {
			return nil, pathError(errs.Conflict, "%s is a link to nothing", clip(at))
		}
		if !create {
			return nil, nil
		}
		if err := p.makeDir(root, at); err != nil {
			return nil, changeError(at, err)
		}
	}
	f, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, pathError(errs.Conflict, "%s is not a directory", clip(dir))
	}
	if err != nil {
		return nil, files.OpenError(dir, err)
	}
	return f, nil
}

func (p Place) makeDir(root *os.Root, at string) error {
	parent, err := root.OpenFile(path.Dir(at), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	if real, err := files.RealPath(root, parent); err != nil || files.IsAgentPath(real) {
		return errors.Join(fs.ErrPermission, err)
	}
	base := path.Base(at)
	if err := unix.Mkdirat(int(parent.Fd()), base, newDirMode); err != nil {
		return err
	}
	if uid, gid, ok := ownerIn(parent, p.User); ok {
		if err := unix.Fchownat(int(parent.Fd()), base, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return parent.Sync()
}

// checkNew checks the path of a file or directory that is to exist afterwards.
func checkNew(field, name string) error {
	parts := strings.Split(name, "/")
	bad := func(part string) bool { return len(part) > maxName }
	fail := func(format string, args ...any) error {
		return &errs.Error{Kind: errs.Malformed, Field: field, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case name == "", path.Clean(name) == ".":
		return fail("must name a file or directory in the instance's directory")
	case !utf8.ValidString(name), validate.HasControl(name):
		return fail("must be text in UTF-8 without control characters")
	case slices.ContainsFunc(parts, bad), len(parts) > maxDepth:
		return fail("must have at most %d names of at most %d bytes", maxDepth, maxName)
	case strings.HasSuffix(name, "/"):
		return fail("must not end with a slash")
	case files.IsAgentPath(name):
		return fail("must have no names that begin with .orrery: these belong to the node's agent")
	}
	return nil
}

// renameNew renames a file unless the new name exists.
func renameNew(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	var st unix.Stat_t // a filesystem without RENAME_NOREPLACE
	if err := unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		return errors.Join(unix.EEXIST, err)
	}
	return unix.Renameat(fromDir, from, toDir, to)
}

// sizeOf returns the size of a regular file, 0 for others.
func sizeOf(fi fs.FileInfo) int64 {
	if fi.Mode().IsRegular() {
		return fi.Size()
	}
	return 0
}

// changeError says why a file could not be changed.
func changeError(name string, err error) error {
	var known *errs.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &errs.Error{Kind: errs.Exhausted, Message: fleet.ReasonDiskFull.Text() + ": free space on it, and try again", Err: err}
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		return &errs.Error{Kind: errs.Conflict, Message: clip(name) + " was created meanwhile: read it, and try again", Err: err}
	case errors.Is(err, fs.ErrNotExist):
		return &errs.Error{Kind: errs.Conflict, Message: clip(name) + " or its directory was removed meanwhile: try again", Err: err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &errs.Error{Kind: errs.Conflict, Message: clip(name) + " cannot be changed by the node's agent: it may not write to the directory", Err: err}
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return &errs.Error{Kind: errs.Conflict, Message: clip(name) + " is on another filesystem, or one is mounted on it", Err: err}
	}
	return &errs.Error{Kind: errs.Conflict, Message: clip(name) + " cannot be changed: " + causeOf(err), Err: err}
}

// causeOf returns the system's text of an error, without paths of the host.
func causeOf(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return "the filesystem refused it"
}

func pathError(k errs.Kind, format string, args ...any) error {
	return &errs.Error{Kind: k, Field: "path", Message: fmt.Sprintf(format, args...)}
}

// named replaces the field path of an error.
func named(field string, err error) error {
	var e *errs.Error
	if errors.As(err, &e) && e.Field == "path" {
		return &errs.Error{Kind: e.Kind, Field: field, Message: e.Message, Err: err}
	}
	return err
}

// clip shortens a path for a message.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	return strings.ToValidUTF8(name, "?")
}
