package fileedit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// staged is a new content in the agent's own directory, flushed to the disk.
type staged struct {
	editor *Editor
	file   *os.File
	name   string
	size   int64
	// mode is the mode of a new file, and op the Op of the version that keeps a replaced one.
	mode  os.FileMode
	op    string
	moved bool
}

// stage writes a content of at most a number of bytes to the staging directory.
func (e *Editor) stage(ctx context.Context, body io.Reader, most int64) (_ *staged, err error) {
	s := &staged{editor: e, name: rand.Text(), mode: newFileMode, op: opWrite}
	if s.file, err = e.staging.OpenFile(s.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, changeError("the file", err)
	}
	defer func() {
		if err != nil {
			s.discard()
		}
	}()
	limited := io.LimitReader(body, most+1)
	for err == nil {
		if err := e.room(e.dir, checkEvery); err != nil {
			return nil, err
		}
		var n int64
		n, err = io.CopyN(s.file, limited, checkEvery)
		s.size += n
		if ctx.Err() != nil {
			return nil, errs.Wrap("fileedit.stage", ctx.Err())
		}
	}
	var full *os.PathError
	switch {
	case errors.As(err, &full):
		return nil, changeError("the file", err)
	case !errors.Is(err, io.EOF):
		return nil, &errs.Error{Kind: errs.Malformed, Message: "the content did not arrive completely: send it again", Err: err}
	case s.size > most:
		return nil, errs.New(errs.TooLarge, "the file is larger than %d bytes", most)
	}
	err = changeError("the file", s.file.Sync())
	return s, err
}

// discard removes the content unless it was moved to its place.
func (s *staged) discard() {
	_ = s.file.Close()
	if !s.moved {
		_ = s.editor.staging.Remove(s.name)
	}
}

// own gives the content the mode and owner of the file that it replaces, or those of a new file.
// Conflict if the agent may not give a file that owner.
func (s *staged) own(at *target, user string) error {
	mode := s.mode
	uid, gid, change := ownerIn(at.parent, user)
	if at.info != nil {
		mode = at.info.Mode().Perm()
		if st, ok := at.info.Sys().(*syscall.Stat_t); ok {
			uid, gid, change = int(st.Uid), int(st.Gid), true
		}
	}
	if change {
		err := s.file.Chown(uid, gid)
		if errors.Is(err, os.ErrPermission) {
			return errs.New(errs.Conflict, "%s belongs to another user (%d:%d), and the node's agent may not write files for that user: it would have to run as root", clip(at.path), uid, gid)
		}
		if err != nil {
			return changeError(at.path, err)
		}
	}
	return changeError(at.path, s.file.Chmod(mode))
}

// ownerIn returns the owner of a new file in a directory. change is false if the agent cannot give
// files to others.
func ownerIn(dir *os.File, user string) (uid, gid int, change bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	if user != "" {
		if account, err := confine.Lookup(user); err == nil {
			return account.UID, account.GID, true
		}
	}
	if fi, err := dir.Stat(); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			return int(st.Uid), int(st.Gid), true
		}
	}
	return 0, 0, false
}

// moveTo renames the content to its place. A new file replaces nothing that was created meanwhile.
func (s *staged) moveTo(at *target) error {
	from, name := s.editor.stagingFD(), s.name
	move := unix.Renameat
	if at.info == nil {
		move = renameNew
	}
	err := move(from, name, at.fd(), at.base)
	if errors.Is(err, unix.EXDEV) {
		return s.copyTo(at, move)
	}
	if err != nil {
		return changeError(at.path, err)
	}
	s.moved = true
	return at.flush()
}

// copyTo copies the content to a file of the agent beside its place on another filesystem, and renames
// that. The name is always the same, so that a killed agent leaves at most one such file per path.
func (s *staged) copyTo(at *target, move func(int, string, int, string) error) error {
	sum := sha256.Sum256([]byte(at.base))
	name := ".orrery-put-" + hex.EncodeToString(sum[:12])
	if err := unix.Unlinkat(at.fd(), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return changeError(at.path, err)
	}
	fd, err := unix.Openat(at.fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return changeError(at.path, err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = func() error {
		if _, err := io.Copy(f, io.NewSectionReader(s.file, 0, s.size)); err != nil {
			return err
		}
		fi, err := s.file.Stat()
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
		if err := errors.Join(f.Chmod(fi.Mode().Perm()), f.Sync()); err != nil {
			return err
		}
		return move(at.fd(), name, at.fd(), at.base)
	}()
	if err != nil {
		_ = unix.Unlinkat(at.fd(), name, 0)
		_ = f.Close()
		return changeError(at.path, err)
	}
	_ = s.file.Close()
	_ = s.editor.staging.Remove(s.name)
	s.file, s.moved = f, true
	return at.flush()
}

// room refuses a change that would fill the disk of a directory.
func (e *Editor) room(dir string, bytes int64) error {
	free, err := e.cfg.Free(dir)
	if err != nil {
		return changeError("the file", err)
	}
	if free-bytes < MinFree {
		return errs.New(errs.Exhausted, "%s: only %d MiB are free on the node's disk, and %d MiB stay free. Free space on it, and try again", fleet.ReasonDiskFull.Text(), free>>20, int64(MinFree>>20))
	}
	return nil
}

// free returns the free bytes of a directory's disk.
func free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}
