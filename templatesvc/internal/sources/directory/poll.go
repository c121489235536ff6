package directory

import (
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollEvery is the shortest pause between two scans, on file systems without
	// notifications. After a scan of duration t, the pause is at least pollRest times t.
	pollEvery = time.Second
	pollRest  = 20
)

// poller finds changes below a directory by comparing two scans. Its zero value has not
// scanned yet.
type poller struct {
	seen map[string]entry
}

// entry is the state of a file or directory in a scan.
type entry struct {
	mode  fs.FileMode
	stamp stamp
}

func entryOf(info fs.FileInfo) entry {
	if info.IsDir() { // the directory's files have their own entries
		return entry{mode: info.Mode()}
	}
	return entry{mode: info.Mode(), stamp: stampOf(info)}
}

// look returns the changes since the previous look, as events like the kernel's. The first
// look returns none.
func (p *poller) look(dir string) (changes []fsnotify.Event) {
	found := make(map[string]entry, len(p.seen))
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return nil // the next look tries again
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		now := entryOf(info)
		found[path] = now
		switch before, known := p.seen[path]; {
		case p.seen == nil:
		case !known:
			changes = append(changes, fsnotify.Event{Name: path, Op: fsnotify.Create})
		case before != now:
			changes = append(changes, fsnotify.Event{Name: path, Op: fsnotify.Write})
		}
		return nil
	})
	for path := range p.seen {
		if _, still := found[path]; !still {
			changes = append(changes, fsnotify.Event{Name: path, Op: fsnotify.Remove})
		}
	}
	p.seen = found
	return changes
}
