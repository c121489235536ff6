package source

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollEvery is the shortest pause between two looks for changes where the kernel tells of
	// none, and pollRest how many times as long as a look took the pause is at least.
	pollEvery = time.Second
	pollRest  = 20
)

// poller finds changes below a directory by comparing it with how it was. Its zero value has
// seen nothing.
type poller struct {
	seen map[string]entry
}

// entry is how something below the directory is.
type entry struct {
	mode   fs.FileMode
	size   int64
	time   time.Time
	number uint64
}

func entryOf(info fs.FileInfo) entry {
	if info.IsDir() { // what changes in it has an entry of its own
		return entry{mode: info.Mode()}
	}
	e := entry{mode: info.Mode(), size: info.Size(), time: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.number = st.Ino
	}
	return e
}

// look finds what has changed since the look before, as notifications of the kernel would
// tell it. The first look finds nothing.
func (p *poller) look(dir string) (changes []fsnotify.Event) {
	found := make(map[string]entry, len(p.seen))
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return nil // what cannot be read now is looked at again
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
