package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
)

// canWrite are the bits that read-only templates are without.
const canWrite = 0o222

// mode is what a file from a template may be used for.
func (a *application) mode(p string, mode fs.FileMode) fs.FileMode {
	if a.sealed(p) {
		return mode &^ canWrite
	}
	return mode
}

// sealed reports whether a file may not be written to by the instance.
func (a *application) sealed(p string) bool {
	_, brought := a.tree.files[p]
	return brought && a.request.Plan.Confine.ReadOnlyTemplates && !protects(a.request.Plan.ProtectedPaths, p)
}

// own gives the directory to the user the instance runs as, and to nobody else but the
// agent. What it may not write to stays the agent's, in directories where others' files
// cannot be replaced: a mode alone would keep no owner from anything. An agent that is
// not root has nothing to give away.
func (a *application) own(context.Context) error {
	name := a.request.Plan.Confine.User
	if name == "" || os.Geteuid() != 0 {
		return nil
	}
	account, err := confine.Lookup(name)
	if err != nil {
		return &Failure{Reason: fleet.ReasonPrepareFailed, Message: errs.MessageOf(err), Err: err}
	}
	return fs.WalkDir(a.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == claim.FileName {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return a.give(p, info, account)
	})
}

func (a *application) give(p string, info fs.FileInfo, to confine.Account) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	uid, mode := to.UID, info.Mode().Perm()
	switch {
	case grants(info.Mode(), st): // by this name only: its other name may be another user's file
		return a.root.Remove(p)
	case info.Mode().IsRegular() && st.Nlink > 1: // somebody else may know it by another name
		return nil
	case info.Mode().IsRegular() && a.sealed(p):
		uid, mode = 0, mode&^canWrite|mode&0o500>>3 // by its group it reads and runs them
	case info.IsDir() && (p == "." || a.tree.dirs[p]):
		mode = a.dirMode(p, mode)
		if a.request.Plan.Confine.ReadOnlyTemplates {
			uid, mode = 0, mode|0o070|fs.ModeSticky
		}
	}
	if int(st.Uid) != uid || int(st.Gid) != to.GID {
		if err := a.root.Lchown(p, uid, to.GID); err != nil {
			return err
		}
	}
	raised := info.Mode().IsRegular() && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0
	if raised || mode != info.Mode().Perm() && info.Mode()&fs.ModeSymlink == 0 {
		return a.root.Chmod(p, mode)
	}
	return nil
}

// grants reports whether a file gives rights to those who open or run it, and must be
// removed. A server that was root in a container may have left it in a static directory. A
// setuid file with one name only loses the bit.
func grants(mode fs.FileMode, st *syscall.Stat_t) bool {
	return mode&fs.ModeDevice != 0 || mode.IsRegular() && mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && st.Nlink > 1
}

// dirMode closes the instance's directory itself to other instances' users.
func (a *application) dirMode(p string, mode fs.FileMode) fs.FileMode {
	if p == "." {
		return mode &^ othersMode
	}
	return mode
}

const (
	// ownMode is the mode of an instance's directory, othersMode the part that existing
	// directories lose.
	ownMode, othersMode = 0o750, 0o007
	// wayMode is the mode of a directory that leads to them, closedMode of one that leads
	// to those of containers.
	wayMode, closedMode = 0o711, 0o700
)

// closeToOthers takes others' rights to a kept directory. One that belongs to another user
// is that user's to close.
func (a *application) closeToOthers(context.Context) error {
	info, err := a.root.Stat(".")
	if err != nil || info.Mode()&othersMode == 0 {
		return err
	}
	err = a.root.Chmod(".", info.Mode()&^othersMode)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// Upgrade does for the directories of earlier agents what Build does for new ones: it
// closes them to others, and puts those of containers where only the agent may pass. all
// are the instances of this node. A container may use a directory that is moved: its mount
// follows.
func (b *Builder) Upgrade(all []Request) error {
	var failed []error
	for _, r := range all {
		if r.Plan.Runtime != fleet.RuntimeDocker {
			continue
		}
		dir := b.Dir(r.Placement, r.Plan)
		if !r.Plan.Static {
			failed = append(failed, moveTo(dir, filepath.Join(b.data, runningDir, string(r.Placement.Instance))))
		}
		failed = append(failed, shut(filepath.Dir(dir), closedMode))
	}
	groups, err := within(filepath.Join(b.data, staticDir))
	failed = append(failed, err)
	for _, in := range append(groups, filepath.Join(b.data, runningDir), filepath.Join(b.data, containedDir)) {
		dirs, err := within(in)
		failed = append(failed, err)
		for _, dir := range dirs {
			failed = append(failed, shut(dir, fs.ModePerm&^othersMode))
		}
	}
	return errs.As(errs.Unavailable, "workspace.Upgrade", errors.Join(failed...))
}

// within are the paths in a directory; none in one that does not exist.
func within(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths, err
}

// moveTo moves a directory from an earlier place, if it is there.
func moveTo(dir, from string) error {
	if there, err := exists(from); !there || err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), closedMode); err != nil {
		return err
	}
	return os.Rename(from, dir)
}

// shut takes all rights to a directory but some. It leaves files and links alone.
func shut(dir string, but fs.FileMode) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.IsDir() || info.Mode().Perm()&^but == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode()&^(fs.ModePerm&^but))
}

// Holds reports whether there is a directory of a dynamic instance.
func (b *Builder) Holds(id fleet.InstanceID) bool {
	for _, in := range []string{runningDir, containedDir} {
		if _, err := os.Lstat(filepath.Join(b.data, in, string(id))); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// passable lets an instance's user pass the agent's directories on the way to its own,
// and no more than pass. The way to one of a container is closed.
func (b *Builder) passable(r Request, dir string) error {
	if r.Plan.Runtime == fleet.RuntimeDocker {
		return shut(filepath.Dir(dir), closedMode)
	}
	if r.Plan.Confine.User == "" || os.Geteuid() != 0 {
		return nil
	}
	for d := filepath.Dir(dir); d == b.data || strings.HasPrefix(d, b.data+"/"); d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			return err
		}
		if want := info.Mode().Perm()&^0o066 | 0o011; want != info.Mode().Perm() {
			if err := os.Chmod(d, want); err != nil {
				return err
			}
		}
	}
	return nil
}
