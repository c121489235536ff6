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
	"github.com/orreryhq/orrery/nodeagent/internal/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// A guard's files stand in the run's own directory.

func lockPath(runDir string) string { return filepath.Join(runDir, "guard") }
func notePath(runDir string) string { return filepath.Join(runDir, "guard-note") }
func logPath(runDir string) string  { return filepath.Join(runDir, "guard-log") }

// Note is what a guard leaves when the deadline has passed.
type Note struct {
	// Run is the run that was ended, Deadline the node's deadline.
	Run      int             `json:"run"`
	Deadline deadline.Moment `json:"deadline"`
	At       time.Time       `json:"at"`
}

// Killed reports whether a guard ended a run because the deadline had passed.
func Killed(runDir string, run int) bool {
	b, err := os.ReadFile(notePath(runDir))
	var n Note
	return err == nil && json.Unmarshal(b, &n) == nil && n.Run == run
}

func (n Note) leave(runDir string) error {
	b, err := json.Marshal(n)
	if err != nil {
		return errs.As(errs.Internal, "guard.leave", err)
	}
	return errs.As(errs.Unavailable, "guard.leave", os.WriteFile(notePath(runDir), append(b, '\n'), 0o600))
}

func forget(runDir string) error {
	err := os.Remove(notePath(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.As(errs.Unavailable, "guard.forget", err)
}

// holder is who holds the lock.
type holder struct {
	runtime.ProcessID
	Run int `json:"run"`
}

// take locks the file and writes the holder into it. Conflict when a guard has it.
func take(runDir string, h holder) (*os.File, error) {
	f, err := os.OpenFile(lockPath(runDir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "guard.take", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, errs.As(errs.Conflict, "guard.take", err)
	}
	b, err := json.Marshal(h)
	if err == nil {
		err = errors.Join(f.Truncate(0), writeAt(f, append(b, '\n')))
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.As(errs.Unavailable, "guard.take", err)
	}
	return f, nil
}

func writeAt(f *os.File, b []byte) error {
	_, err := f.WriteAt(b, 0)
	return err
}

// present is the guard that holds the lock. ok is false when none does; Internal
// when one does that cannot be told.
func present(runDir string) (h holder, ok bool, err error) {
	f, err := os.Open(lockPath(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, errs.As(errs.Unavailable, "guard.present", err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		// Closing is not enough: a child that is being forked may hold it a moment longer.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		return h, false, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		return h, false, errs.As(errs.Internal, "guard.present", err)
	}
	return h, true, nil
}
