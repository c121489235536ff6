package console

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Watch is one viewer's hold on a log.
type Watch struct {
	follower *Follower
	log      *followed
	once     sync.Once
}

// Follow makes a viewer of a log, which need not exist yet. Close it.
func (f *Follower) Follow(path string) *Watch {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.get(path)
	l.viewers++
	f.viewers++
	f.watch(l)
	return &Watch{follower: f, log: l}
}

// Changed is closed at the next news of the log. Take it before looking.
func (w *Watch) Changed() <-chan struct{} {
	w.follower.mu.Lock()
	defer w.follower.mu.Unlock()
	return w.log.changed
}

// Close ends the hold.
func (w *Watch) Close() {
	w.once.Do(func() {
		w.follower.mu.Lock()
		defer w.follower.mu.Unlock()
		w.log.viewers--
		w.follower.viewers--
		w.follower.drop(w.log)
	})
}

// get is a log's entry. The caller holds the mutex, here and below.
func (f *Follower) get(path string) *followed {
	l, ok := f.logs[path]
	if !ok {
		l = &followed{path: path, watch: -1, changed: make(chan struct{})}
		f.logs[path] = l
	}
	return l
}

// watch has the kernel tell of a log, if it exists.
func (f *Follower) watch(l *followed) {
	if l.watch >= 0 || f.news == nil {
		return
	}
	conn, err := f.news.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = conn.Control(func(fd uintptr) {
		var wd int
		if wd, err = f.add(int(fd), l.path, unix.IN_MODIFY); err == nil {
			l.watch, f.watches[wd] = wd, l
		}
	})
	if refused := err != nil && !os.IsNotExist(err); refused != l.refused {
		f.refuse(l, refused)
	}
	if l.refused {
		f.onceLocked("the kernel does not tell of all new output (raise fs.inotify.max_user_watches): those logs are looked at every second", "path", l.path, "error", err)
	}
}

// refuse notes whether the kernel would tell of a log.
func (f *Follower) refuse(l *followed, refused bool) {
	if l.refused = refused; !refused {
		f.refused--
		return
	}
	f.refused++
	f.rouse()
}

// drop forgets a log that nobody wants any more.
func (f *Follower) drop(l *followed) {
	if l.kept || l.viewers > 0 || f.logs[l.path] != l {
		return
	}
	delete(f.logs, l.path)
	if l.refused {
		f.refuse(l, false)
	}
	if l.watch < 0 {
		return
	}
	delete(f.watches, l.watch)
	if conn, err := f.news.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(l.watch)) })
	}
}
