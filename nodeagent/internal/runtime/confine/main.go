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

// exitFailed is the exit code if the command could not be confined or executed.
const exitFailed = 125

// Main is the program that confines a command. Its arguments are a Plan and the command with its
// arguments; EnvironFd holds the command's environment. It returns only on failure, with a
// non-zero exit code.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(stderr, "confine: the agent runs this program to confine a command; do not run it yourself")
		return exitFailed
	}
	runtime.LockOSThread() // the settings apply to this thread, which execs the command
	env, err := readEnviron()
	var s setup
	if err == nil {
		err = json.Unmarshal([]byte(args[0]), &s)
	}
	if err == nil {
		err = s.apply()
	}
	if err == nil {
		err = syscall.Exec(args[1], args[1:], env)
	}
	fmt.Fprintln(stderr, "orrery could not confine the command:", err)
	return exitFailed
}

// apply confines this process. Steps that need privileges come before these are dropped.
func (s setup) apply() error {
	if s.Tmp != "" {
		if err := s.mountTmp(); err != nil {
			return fmt.Errorf("private /tmp: %w", err)
		}
	}
	if s.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	if s.User != nil {
		if err := s.User.become(); err != nil {
			return fmt.Errorf("the user %s: %w", s.User.Name, err)
		}
	}
	return nil
}

// tmp is the directory that a private /tmp replaces.
const tmp = "/tmp"

// mountTmp mounts the run's own directory at /tmp in a new mount namespace. If the instance's
// directory is below /tmp, it stays visible at its path.
func (s setup) mountTmp() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// Later mounts of the host stay visible here; mounts made here are invisible to the host.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	if rest, below := strings.CutPrefix(s.Dir, tmp+"/"); below {
		kept := filepath.Join(s.Tmp, rest)
		if err := os.MkdirAll(kept, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(s.Dir, kept, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if err := unix.Mount(s.Tmp, tmp, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return os.Chdir(s.Dir)
}

// become drops all privileges except the user's. Before, it gives the user the run's input and
// output, so that it can open them by the names of its descriptors.
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
