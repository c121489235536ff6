package workspace

import (
	"context"
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
	if mode != info.Mode().Perm() && info.Mode()&fs.ModeSymlink == 0 {
		return a.root.Chmod(p, mode)
	}
	return nil
}

// dirMode closes the instance's directory itself to other instances' users.
func (a *application) dirMode(p string, mode fs.FileMode) fs.FileMode {
	if p == "." {
		return mode &^ 0o007
	}
	return mode
}

// passable lets an instance's user pass the agent's directories on the way to its own,
// and no more than pass.
func (b *Builder) passable(r Request, dir string) error {
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
