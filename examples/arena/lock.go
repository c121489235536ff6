package arena

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile is held by flock for the life of the process, so the kernel frees it however
// the process ends. What happened to it is appended to it, one line each:
//
//	acquired|released|refused <pid> <instance> <time>
//
// Two "acquired" without a "released" between them mean that the first holder died;
// a "refused" means that two processes were there at once.
type lockFile struct {
	file     *os.File
	instance string
}

// acquireLock takes the lock at once or fails. An empty instance is written as "-".
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

// release notes the release and gives the lock back. A nil lock is no lock.
func (l *lockFile) release() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.note("released"), l.close())
}

// close gives the lock back without a word, as a crash does. Closing twice is harmless.
func (l *lockFile) close() error {
	if err := l.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// note appends a line with one write, so that lines of several processes stay whole.
func (l *lockFile) note(what string) error {
	_, err := fmt.Fprintf(l.file, "%s %d %s %s\n", what, os.Getpid(), l.instance, time.Now().UTC().Format(time.RFC3339Nano))
	return err
}
