package process

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// clearTmp sets what an earlier run has left in its own /tmp aside, which may be much:
// trash removes it.
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

// trash removes what was set aside, for which nobody waits: one directory at a time, until
// it is closed. What is left then goes when the next run ends, or begins with a /tmp of its
// own, and with the instance at the latest.
type trash struct {
	// one is held while something is removed.
	one    sync.Mutex
	closed chan struct{}

	mu      sync.Mutex
	working sync.WaitGroup // no more is added once closed is closed
}

func newTrash() *trash { return &trash{closed: make(chan struct{})} }

// empty removes what clearTmp has set aside of a run's own /tmp.
func (t *trash) empty(tmpDir string) {
	if tmpDir == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	aside, _ := filepath.Glob(tmpDir + ".*")
	if len(aside) == 0 || t.over() {
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

// remove removes a directory that nobody else can get at, and stops where trash is closed.
func (t *trash) remove(dir string) {
	const some = 256 // names at a time: there may be millions
	for d, err := os.Open(dir); err == nil; {
		var entries []fs.DirEntry
		entries, err = d.ReadDir(some)
		for _, e := range entries {
			switch path := filepath.Join(dir, e.Name()); {
			case t.over():
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

func (t *trash) over() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

// close has the removing stop and returns when it has.
func (t *trash) close() {
	t.mu.Lock()
	if !t.over() {
		close(t.closed)
	}
	t.mu.Unlock()
	t.working.Wait()
}
