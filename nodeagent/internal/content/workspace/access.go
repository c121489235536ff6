package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// writeBits are the mode bits that read-only templates lose.
const writeBits = 0o222

// mode returns the mode of a file from a template.
func (a *applier) mode(p string, mode fs.FileMode) fs.FileMode {
	if a.readOnly(p) {
		return mode &^ writeBits
	}
	return mode
}

// readOnly reports whether the instance must not write to a file.
func (a *applier) readOnly(p string) bool {
	_, brought := a.tree.files[p]
	return brought && a.request.Plan.Confine.ReadOnlyTemplates && !protects(a.request.Plan.ProtectedPaths, p)
}

// chown gives the directory to the instance's user; only that user and the agent may enter
// it. Read-only files stay root's, in sticky directories: an owner could change the mode of
// its file, or replace the file. It does nothing if the agent is not root.
func (a *applier) chown(context.Context) error {
	account, ok, err := a.request.account()
	if !ok || err != nil || os.Geteuid() != 0 {
		return err
	}
	before, err := a.root.Stat(".")
	if err != nil {
		return err
	}
	r := ownerReport{}
	err = fs.WalkDir(a.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == claim.FileName || p == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return a.chownOne(p, info, account, &r)
	})
	if err == nil {
		err = a.chownOne(".", before, account, &r) // last, so that an interrupted change is repeated
	}
	if err == nil && !a.fresh {
		a.reportOwner(before, account, r)
	}
	return err
}

// account returns the user that owns the directory; ok is false for the agent's own. The error is a
// Failure.
func (r Request) account() (a confine.Account, ok bool, err error) {
	a, ok, err = confine.AccountOf(r.UID, r.Plan.Confine.User)
	if err != nil {
		err = &Failure{Reason: fleet.ReasonPrepareFailed, Message: errs.MessageOf(err), Err: err}
	}
	return a, ok, err
}

// ownerReport counts the files whose owner was changed, and those that kept another owner because they
// have several names.
type ownerReport struct{ changed, linked int }

// reportOwner logs that an existing directory was given to another user.
func (a *applier) reportOwner(before fs.FileInfo, to confine.Account, r ownerReport) {
	st, ok := before.Sys().(*syscall.Stat_t)
	if !ok || int(st.Gid) == to.GID || a.builder.Log == nil {
		return
	}
	a.builder.Log.Info("a directory was given to the user of its instance", "directory", a.root.Name(), "instance", a.request.Placement.Instance,
		"from", fmt.Sprintf("%d:%d", st.Uid, st.Gid), "to", fmt.Sprintf("%d:%d", to.UID, to.GID), "files", r.changed, "leftHardLinks", r.linked)
}

// Give gives an existing directory to its user, unless it belongs to that user already. Errors are those of
// Build.
func (b *Builder) Give(ctx context.Context, r Request) error {
	account, ok, err := r.account()
	if !ok || err != nil || os.Geteuid() != 0 {
		return err
	}
	dir := b.Dir(r.Placement, r.Plan)
	info, err := os.Lstat(dir)
	if err != nil {
		return failure(ctx, "the directory cannot be examined", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Gid) == account.GID {
		return nil
	}
	t, err := b.merge(ctx, r.Plan.Layers, render.RulesOf(r.Plan, r.Values)) // its read-only files stay the agent's
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return failure(ctx, "the directory could not be opened", err)
	}
	defer root.Close()
	a := &applier{builder: b, root: root, request: r, tree: t}
	return failure(ctx, "the directory could not be given to its user", errors.Join(a.denyOthers(ctx), a.chown(ctx)))
}

func (a *applier) chownOne(p string, info fs.FileInfo, to confine.Account, r *ownerReport) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	uid, mode := to.UID, info.Mode().Perm()
	switch {
	case isPrivileged(info.Mode(), st): // removes only this name: another one may belong to another user
		return a.root.Remove(p)
	case info.Mode().IsRegular() && st.Nlink > 1: // another user may own the file by another name
		if int(st.Uid) != uid {
			r.linked++
		}
		return nil
	case info.Mode().IsRegular() && a.readOnly(p):
		uid, mode = 0, mode&^writeBits|mode&0o500>>3 // the instance's group may read and execute it
	case info.IsDir() && (p == "." || a.tree.dirs[p]):
		mode = a.dirMode(p, mode)
		if a.request.Plan.Confine.ReadOnlyTemplates {
			uid, mode = 0, mode|0o070|fs.ModeSticky
		}
	}
	if int(st.Uid) != uid || int(st.Gid) != to.GID {
		r.changed++
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

// isPrivileged reports whether opening or executing a file gives rights: a device, or a setuid
// file with several names. A server that was root in a container may have left it in a static
// directory. A setuid file with one name only loses the bit.
func isPrivileged(mode fs.FileMode, st *syscall.Stat_t) bool {
	return mode&fs.ModeDevice != 0 || mode.IsRegular() && mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && st.Nlink > 1
}

// dirMode denies other users access to the instance's directory itself.
func (a *applier) dirMode(p string, mode fs.FileMode) fs.FileMode {
	if p == "." {
		return mode &^ othersMode
	}
	return mode
}

const (
	// instanceMode is the mode of an instance's directory. othersMode are the bits that an
	// existing one loses.
	instanceMode, othersMode = 0o750, 0o007
	// parentMode is the mode of a directory that holds instances' directories, privateMode
	// that of one that holds those of containers.
	parentMode, privateMode = 0o711, 0o700
)

// denyOthers denies other users access to a kept directory. It skips a directory that another
// user owns.
func (a *applier) denyOthers(context.Context) error {
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

// Upgrade brings the directories of earlier versions of the agent up to date. It denies others
// access, and moves those of containers to a private directory. all are the instances of
// this node. A container may be running: its mount follows the moved directory.
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
		failed = append(failed, restrict(filepath.Dir(dir), privateMode))
	}
	groups, err := children(filepath.Join(b.data, staticDir))
	failed = append(failed, err)
	for _, in := range append(groups, filepath.Join(b.data, runningDir), filepath.Join(b.data, containedDir)) {
		dirs, err := children(in)
		failed = append(failed, err)
		for _, dir := range dirs {
			failed = append(failed, restrict(dir, fs.ModePerm&^othersMode))
		}
	}
	return errs.WrapAs(errs.Unavailable, "workspace.Upgrade", errors.Join(failed...))
}

// children returns the paths in a directory; none if it does not exist.
func children(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths, err
}

// moveTo moves a directory from an earlier path, if it exists.
func moveTo(dir, from string) error {
	if there, err := exists(from); !there || err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), privateMode); err != nil {
		return err
	}
	return os.Rename(from, dir)
}

// restrict removes all mode bits of a directory except some. It ignores files and symlinks.
func restrict(dir string, but fs.FileMode) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.IsDir() || info.Mode().Perm()&^but == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode()&^(fs.ModePerm&^but))
}

// Holds reports whether a dynamic instance's directory exists.
func (b *Builder) Holds(id fleet.InstanceID) bool {
	for _, in := range []string{runningDir, containedDir} {
		if _, err := os.Lstat(filepath.Join(b.data, in, string(id))); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// setParentModes lets an instance's user pass through the parent directories, and nothing more.
// The parent of a container's directory becomes private.
func (b *Builder) setParentModes(r Request, dir string) error {
	if r.Plan.Runtime == fleet.RuntimeDocker {
		return restrict(filepath.Dir(dir), privateMode)
	}
	if r.UID == 0 && r.Plan.Confine.User == "" || os.Geteuid() != 0 || b.Reachable {
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
