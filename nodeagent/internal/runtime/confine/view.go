package confine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// View says which mounts runs of other users get.
type View struct {
	// Own is set if runs have mounts of their own: each reaches its directory, also below
	// closed parents.
	Own bool `json:"own,omitempty"`
	// Hidden is set if /proc shows a run only processes of its own user.
	Hidden bool `json:"hidden,omitempty"`
}

// Probe finds out what this process may give to runs. The error says why that is not everything.
func Probe() (v View, err error) {
	err = OnThread(func() error {
		if err := ownMounts(); err != nil {
			return err
		}
		v.Own = true
		if err := hideProcesses(); err != nil {
			return err
		}
		v.Hidden = true
		return nil
	})
	return v, err
}

// mount gives this thread mounts of its own, if the confinement needs them.
func (c *Confinement) mount() error {
	if !c.View.Own && c.Tmp == "" {
		return nil
	}
	if err := ownMounts(); err != nil {
		return err
	}
	if c.Tmp != "" {
		if err := c.mountTmp(); err != nil {
			return err
		}
	}
	if c.View.Hidden {
		if err := hideProcesses(); err != nil {
			return err
		}
	}
	if c.View.Own {
		return reach(c.Dir, *c.User)
	}
	return nil
}

// ownMounts gives this thread a copy of the host's mounts. Later mounts of the host appear in it, and
// its own do not appear on the host.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "")
}

// hideProcesses mounts a /proc that shows each user only its own processes. Before Linux 5.8 the
// option would apply to the /proc of the whole host; those kernels refuse its textual value.
func hideProcesses() error {
	return mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=invisible")
}

// tmp is the directory that a private /tmp replaces.
const tmp = "/tmp"

// mountTmp mounts the run's own directory at /tmp. If the instance's directory is below /tmp, it stays
// visible at its path.
func (c *Confinement) mountTmp() error {
	if rest, ok := below(c.Dir, tmp); ok {
		kept := filepath.Join(c.Tmp, rest)
		if err := os.MkdirAll(kept, 0o755); err != nil {
			return err
		}
		if err := mount(c.Dir, kept, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return mount(c.Tmp, tmp, "", unix.MS_BIND|unix.MS_REC, "")
}

// reach makes a directory reachable by its path, and by the path without symbolic links, for an account
// that may not pass all parents. It covers the topmost of those parents by an empty filesystem that
// leads to the directory only.
func reach(dir string, a Account) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	paths := []string{real}
	if dir != real {
		paths = append(paths, dir)
	}
	for _, path := range paths {
		switch closed, err := firstClosed(path, a); {
		case errors.Is(err, fs.ErrNotExist): // the cover of the other path hides it
		case err != nil:
			return err
		case closed == "":
			continue
		default:
			if err := mount("tmpfs", closed, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0711"); err != nil {
				return err
			}
		}
		if err := makePath(path); err != nil {
			return err
		}
		if err := mount("/proc/self/fd/"+strconv.Itoa(fd), path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return nil
}

// firstClosed returns the topmost parent of a path that an account may not pass; empty if it may pass all.
func firstClosed(path string, a Account) (string, error) {
	all := parents(path)
	for _, dir := range all[:len(all)-1] {
		if may, err := a.mayEnter(dir); err != nil || !may {
			return dir, err
		}
	}
	return "", nil
}

// makePath creates the missing directories of a path, which others may pass but not list. They are in
// a cover.
func makePath(path string) error {
	for _, dir := range parents(path)[1:] {
		err := os.Mkdir(dir, 0o711)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Chmod(dir, 0o711) // independent of the umask
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mount is mount(2) with an error that names the target.
func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return &os.PathError{Op: strings.TrimSpace("mount " + kind), Path: target, Err: err}
	}
	return nil
}
