package arena

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile is a file that the process holds with flock, so that the kernel releases it
// however the process ends. Each event is appended to the file as a line:
//
//	acquired|released|refused <pid> <instance> <time>
//
// Two "acquired" without a "released" between them mean that the first holder died. A
// "refused" means that two processes existed at the same time.
type lockFile struct {
	file     *os.File
	instance string
}

// acquireLock takes the lock at once or fails. It writes an empty instance as "-".
func acquireLock(path, instance string) (*lockFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock: %w", err)
	}
	if instance == "" {
		instance = "-"
	}
	l := &lockFile{file: file, instance: instance}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process holds the lock %s: %w", path, err), l.note("refused"), l.close())
	}
	if err := l.note("acquired"); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// release records the release and gives up the lock. It does nothing for a nil lock.
func (l *lockFile) release() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.note("released"), l.close())
}

// close gives up the lock without a record, as a crash does. It may be called twice.
func (l *lockFile) close() error {
	if err := l.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// note appends a line with one write, so that the lines of several processes do not mix.
func (l *lockFile) note(what string) error {
	_, err := fmt.Fprintf(l.file, "%s %d %s %s\n", what, os.Getpid(), l.instance, time.Now().UTC().Format(time.RFC3339Nano))
	return err
}
