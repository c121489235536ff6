package console

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Subscription is a viewer's subscription to a log.
type Subscription struct {
	follower *Follower
	log      *followedLog
	once     sync.Once
}

// Follow subscribes to a log, which need not exist yet. The caller closes the Subscription.
func (f *Follower) Follow(path string) *Subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.entry(path)
	l.viewers++
	f.viewers++
	f.watch(l)
	return &Subscription{follower: f, log: l}
}

// Changed is closed at the next change of the log. Call it before reading the log.
func (w *Subscription) Changed() <-chan struct{} {
	w.follower.mu.Lock()
	defer w.follower.mu.Unlock()
	return w.log.changed
}

// Close ends the subscription.
func (w *Subscription) Close() {
	w.once.Do(func() {
		w.follower.mu.Lock()
		defer w.follower.mu.Unlock()
		w.log.viewers--
		w.follower.viewers--
		w.follower.drop(w.log)
	})
}

// entry returns a log's entry and creates it if necessary. f.mu is held, here and below.
func (f *Follower) entry(path string) *followedLog {
	l, ok := f.logs[path]
	if !ok {
		l = &followedLog{path: path, watch: -1, changed: make(chan struct{})}
		f.logs[path] = l
	}
	return l
}

// watch adds an inotify watch for a log, if the log exists.
func (f *Follower) watch(l *followedLog) {
	if l.watch >= 0 || f.inotify == nil {
		return
	}
	conn, err := f.inotify.SyscallConn()
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
		f.setRefused(l, refused)
	}
	if l.refused {
		f.warnOnceLocked("inotify cannot watch all logs: the others are polled every second; raise fs.inotify.max_user_watches", "path", l.path, "error", err)
	}
}

// setRefused records whether inotify refuses to watch a log.
func (f *Follower) setRefused(l *followedLog, refused bool) {
	if l.refused = refused; !refused {
		f.refused--
		return
	}
	f.refused++
	f.wakeMaintenance()
}

// drop removes a log that is neither viewed nor maintained.
func (f *Follower) drop(l *followedLog) {
	if l.maintained || l.viewers > 0 || f.logs[l.path] != l {
		return
	}
	delete(f.logs, l.path)
	if l.refused {
		f.setRefused(l, false)
	}
	if l.watch < 0 {
		return
	}
	delete(f.watches, l.watch)
	if conn, err := f.inotify.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(l.watch)) })
	}
}
