package guard

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// A guard's files are in the run's directory.

func lockPath(runDir string) string { return filepath.Join(runDir, "guard") }
func notePath(runDir string) string { return filepath.Join(runDir, "guard-note") }
func logPath(runDir string) string  { return filepath.Join(runDir, "guard-log") }

// Note is what a guard writes before it kills because of the deadline.
type Note struct {
	// Run is the killed run, and Deadline the node's deadline.
	Run      int             `json:"run"`
	Deadline deadline.Moment `json:"deadline"`
	At       time.Time       `json:"at"`
}

// Killed reports whether a guard killed a run because of the deadline.
func Killed(runDir string, run int) bool {
	b, err := os.ReadFile(notePath(runDir))
	var n Note
	return err == nil && json.Unmarshal(b, &n) == nil && n.Run == run
}

func (n Note) write(runDir string) error {
	b, err := json.Marshal(n)
	if err != nil {
		return errs.WrapAs(errs.Internal, "guard.leave", err)
	}
	return errs.WrapAs(errs.Unavailable, "guard.leave", os.WriteFile(notePath(runDir), append(b, '\n'), 0o600))
}

func removeNote(runDir string) error {
	err := os.Remove(notePath(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.WrapAs(errs.Unavailable, "guard.forget", err)
}

// holder identifies the guard that holds the lock.
type holder struct {
	runtime.ProcessID
	Run int `json:"run"`
}

// lockFor locks the file and writes the holder to it. Conflict if another guard holds the lock.
func lockFor(runDir string, h holder) (*os.File, error) {
	f, err := os.OpenFile(lockPath(runDir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "guard.take", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, errs.WrapAs(errs.Conflict, "guard.take", err)
	}
	b, err := json.Marshal(h)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.WrapAs(errs.Unavailable, "guard.take", err)
	}
	return f, nil
}

// findHolder returns the guard that holds the lock. ok is false if none does; Internal if its
// identity cannot be read.
func findHolder(runDir string) (h holder, ok bool, err error) {
	f, err := os.Open(lockPath(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, errs.WrapAs(errs.Unavailable, "guard.findHolder", err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		// Closing is not enough: a child that is being forked may inherit the lock for a moment.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		return h, false, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		return h, false, errs.WrapAs(errs.Internal, "guard.findHolder", err)
	}
	return h, true, nil
}
