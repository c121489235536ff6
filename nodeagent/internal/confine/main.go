package confine

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// failed is the exit code of a program that could not become the command.
const failed = 125

// Main is the program. Its arguments are a Plan and the command with its own, and its
// descriptor EnvironFd is the command's environment. It returns only when it could not
// become the command; the exit code is not 0 then.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(stderr, "confine: the agent runs this before a command that is to be confined")
		return failed
	}
	runtime.LockOSThread() // what is done here is done to this thread, which becomes the command
	env, err := takeEnviron()
	var o order
	if err == nil {
		err = json.Unmarshal([]byte(args[0]), &o)
	}
	if err == nil {
		err = o.obey()
	}
	if err == nil {
		err = syscall.Exec(args[1], args[1:], env)
	}
	fmt.Fprintln(stderr, "orrery could not confine the command:", err)
	return failed
}

// obey confines this process. What takes rights comes before they are given up.
func (o order) obey() error {
	if o.Tmp != "" {
		if err := o.mountTmp(); err != nil {
			return fmt.Errorf("a /tmp of its own: %w", err)
		}
	}
	if o.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	if o.User != nil {
		if err := o.User.become(); err != nil {
			return fmt.Errorf("the user %s: %w", o.User.Name, err)
		}
	}
	return nil
}

// tmp is what is given to each for its own.
const tmp = "/tmp"

// mountTmp puts the run's own directory in the place of /tmp, for this process and all
// it starts. An instance's directory that is below it stays where it is.
func (o order) mountTmp() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// What the host mounts later is seen, what is mounted here is not seen by the host.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	if rest, below := strings.CutPrefix(o.Dir, tmp+"/"); below {
		kept := filepath.Join(o.Tmp, rest)
		if err := os.MkdirAll(kept, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(o.Dir, kept, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if err := unix.Mount(o.Tmp, tmp, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return os.Chdir(o.Dir)
}

// become gives up every right but the user's. The run's input and output become its
// own first, so that it may open them by the names of its descriptors.
func (a Account) become() error {
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		kind := st.Mode & unix.S_IFMT
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil || kind == unix.S_IFIFO || kind == unix.S_IFREG {
			if err := unix.Fchown(fd, a.UID, -1); err != nil {
				return err
			}
		}
	}
	if err := syscall.Setgroups(a.Groups); err != nil {
		return err
	}
	if err := syscall.Setgid(a.GID); err != nil {
		return err
	}
	return syscall.Setuid(a.UID)
}
