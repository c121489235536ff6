package confine

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

// Confinement says how a command is confined. It is sent as JSON to programs in terminals.
type Confinement struct {
	// User is the user to run as; nil for the current user.
	User *Account `json:"user,omitempty"`
	// NoNewPrivileges sets the kernel's no_new_privs flag.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// Tmp is the directory to mount at /tmp; empty for none.
	Tmp string `json:"tmp,omitempty"`
	// Dir is the working directory.
	Dir string `json:"dir"`
	// View is what the command's mounts hide and show.
	View View `json:"view"`
}

// Run is a run that may have to be confined.
type Run struct {
	isolation.Confine
	// UID is the instance's own user and group; 0 for none. It gains no privileges.
	UID int
	// Dir is the working directory, and Tmp the place for a private /tmp.
	Dir, Tmp string
}

// For returns how to confine a run, or nil if it has no restriction. It creates a private /tmp. It
// returns Invalid, with what to do, if this host does not support it.
func For(r Run, v View) (*Confinement, error) {
	if r.UID == 0 && r.User == "" && !r.NoNewPrivileges && !r.PrivateTmp {
		return nil, nil
	}
	c := &Confinement{Dir: r.Dir, NoNewPrivileges: r.NoNewPrivileges || r.UID != 0}
	privileged := os.Geteuid() == 0
	a, ok, err := AccountOf(r.UID, r.User)
	switch {
	case err != nil:
		return nil, err
	case ok && !privileged && a.UID != os.Geteuid():
		return nil, errs.New(errs.Invalid, "only an agent that runs as root can run instances as another user: start it as root, or clear confine.user")
	case ok && privileged:
		c.User = &a
		if a.UID != 0 {
			c.View = v
		}
		if err := c.checkPath(); err != nil {
			return nil, err
		}
	}
	if r.PrivateTmp {
		if !privileged {
			return nil, errs.New(errs.Invalid, "only an agent that runs as root can give instances a /tmp of their own: start it as root, or clear confine.privateTmp")
		}
		c.Tmp = r.Tmp
		if err := makeTmp(r.Tmp); err != nil {
			return nil, errs.WrapAs(errs.Unavailable, "confine.For", err)
		}
	}
	return c, nil
}

func makeTmp(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// checkPath checks that the user may pass all directories down to the working directory. With mounts
// of its own it need not.
func (c *Confinement) checkPath() error {
	if c.View.Own {
		return nil
	}
	for _, dir := range parents(c.Dir) {
		may, err := c.User.mayEnter(dir)
		if err != nil {
			return errs.WrapAs(errs.Unavailable, "confine.checkPath", err)
		}
		if !may {
			return errs.New(errs.Invalid, "the user %s may not enter %s, a parent of the instance's directory, and the agent may not mount the directory for it: allow the agent to mount (CAP_SYS_ADMIN), run chmod o+x %s, or move the agent's data directory", c.User.Name, dir, dir)
		}
	}
	return nil
}

// parents returns the path of a directory and of those above it, the root first.
func parents(dir string) (all []string) {
	all = []string{"/"}
	for n := range dir {
		if n > 0 && dir[n] == '/' {
			all = append(all, dir[:n])
		}
	}
	return append(all, dir)
}

// Start calls start with attributes that confine the process it starts. files are the input and output
// of the process. A program of the agent's size that confines itself first takes 7 ms more; with this
// thread, confinement takes less than 1 ms: see BenchmarkStart in package process.
func (c *Confinement) Start(attr *os.ProcAttr, start func(*os.ProcAttr) (*os.Process, error), files ...*os.File) (p *os.Process, err error) {
	confined := *attr
	sys := *attr.Sys
	confined.Sys = &sys
	if c.User != nil {
		sys.Credential = c.User.credential()
		for _, f := range files {
			if err := c.User.own(int(f.Fd())); err != nil {
				return nil, err
			}
		}
	}
	err = OnThread(func() error {
		alone, err := c.restrict()
		if err != nil {
			return err
		}
		if alone { // the user may be unable to reach the directory by its path
			if err := unix.Chdir(c.Dir); err != nil {
				return err
			}
			confined.Dir = ""
		} else {
			confined.Dir = c.Dir
		}
		p, err = start(&confined)
		return err
	})
	return p, err
}

// Apply confines this process, which then executes the command. The caller has locked the thread.
func (c *Confinement) Apply() error {
	if c.User != nil {
		for fd := range 3 {
			if err := c.User.own(fd); err != nil {
				return err
			}
		}
	}
	if _, err := c.restrict(); err != nil {
		return err
	}
	if err := unix.Chdir(c.Dir); err != nil || c.User == nil {
		return err
	}
	if err := syscall.Setgroups(c.User.Groups); err != nil {
		return err
	}
	if err := syscall.Setgid(c.User.GID); err != nil {
		return err
	}
	return syscall.Setuid(c.User.UID)
}

// restrict confines this thread except for its user and its directory. alone reports whether the thread may
// have a working directory of its own: container engines forbid that to processes without CAP_SYS_ADMIN.
func (c *Confinement) restrict() (alone bool, err error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil && !errors.Is(err, unix.EPERM) {
		return false, os.NewSyscallError("unshare", err)
	} else if err == nil {
		alone = true
	}
	if err := c.mount(); err != nil {
		return alone, err
	}
	if c.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return alone, os.NewSyscallError("no new privileges", err)
		}
	}
	return alone, nil
}

// OnThread calls f on a thread that ends afterwards, because its settings cannot be undone.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		// The main thread cannot end, and /proc shows its mounts as those of the process.
		defer runtime.UnlockOSThread()
		done <- OnThread(f)
	}()
	return <-done
}

// below reports whether a path is below a directory, and the rest of it.
func below(path, dir string) (rest string, ok bool) {
	return strings.CutPrefix(path, filepath.Clean(dir)+"/")
}
