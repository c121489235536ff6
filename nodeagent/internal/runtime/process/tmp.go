package process

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// clearTmp renames the private /tmp of an earlier run, because removing it may take long. trash
// removes it.
func clearTmp(tmpDir string) error {
	if tmpDir == "" {
		return nil
	}
	err := os.Rename(tmpDir, tmpDir+"."+rand.Text())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// trash removes renamed directories in the background, one at a time, until it is closed. The
// rest is removed when the next run ends or starts with a private /tmp, or with the instance.
type trash struct {
	// one is held while a directory is removed.
	one    sync.Mutex
	closed chan struct{}

	mu      sync.Mutex
	working sync.WaitGroup // nothing is added once closed is closed
}

func newTrash() *trash { return &trash{closed: make(chan struct{})} }

// empty removes the directories that clearTmp has renamed.
func (t *trash) empty(tmpDir string) {
	if tmpDir == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	aside, _ := filepath.Glob(tmpDir + ".*")
	if len(aside) == 0 || t.isClosed() {
		return
	}
	t.working.Go(func() {
		t.one.Lock()
		defer t.one.Unlock()
		for _, dir := range aside {
			t.remove(dir)
		}
	})
}

// remove removes a directory that no other process uses. It stops when trash is closed.
func (t *trash) remove(dir string) {
	const some = 256 // names per read: there may be millions
	for d, err := os.Open(dir); err == nil; {
		var entries []fs.DirEntry
		entries, err = d.ReadDir(some)
		for _, e := range entries {
			switch path := filepath.Join(dir, e.Name()); {
			case t.isClosed():
				_ = d.Close()
				return
			case e.IsDir():
				t.remove(path)
			default:
				_ = os.Remove(path)
			}
		}
		if err != nil {
			_ = d.Close()
		}
	}
	_ = os.Remove(dir)
}

func (t *trash) isClosed() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

// close stops the removal and waits for it.
func (t *trash) close() {
	t.mu.Lock()
	if !t.isClosed() {
		close(t.closed)
	}
	t.mu.Unlock()
	t.working.Wait()
}
