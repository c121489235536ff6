package console

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// settle is how long news are gathered before those who follow are told: it bounds
	// what a flood of small writes costs.
	settle = 4 * time.Millisecond
	// settleUnseen is the same while nobody follows any log.
	settleUnseen = 20 * time.Millisecond
	// keepEvery is the pause between two looks at the times and the size of the logs that grow.
	keepEvery = time.Second
	// newsBuffer holds the kernel's news of one read.
	newsBuffer = 64 << 10
)

// Follower tells those who look at a log that there is more in it: one for all logs
// and all viewers of an agent. The kernel tells it of writes; nothing is asked again
// and again, so a silent log costs nothing. It holds no output: the file itself is
// what viewers read from, each at its own pace, so none of them can slow a server.
//
// Of the logs it was told to Keep, it also notes the times and gives back what is
// beyond their limit. Make it with NewFollower and run it once.
type Follower struct {
	news *os.File // nil where the kernel gives none
	log  *slog.Logger

	mu      sync.Mutex
	viewers int
	logs    map[string]*followed
	watches map[int]*followed
	// grown are the kept logs that grew since the keeper last looked.
	grown map[*followed]struct{}

	wake      chan struct{}
	closeOnce sync.Once
	closed    chan struct{}
}

// followed is one log; all of it is guarded by the follower's mutex.
type followed struct {
	path string
	// watch is the kernel's number for it, -1 while it is not watched.
	watch   int
	kept    bool
	limit   int64
	viewers int
	changed chan struct{}
}

// NewFollower makes a follower. Where the kernel refuses to tell of writes, logs are
// looked at every now and then instead.
func NewFollower(log *slog.Logger) *Follower {
	f := &Follower{
		log: log, logs: map[string]*followed{}, watches: map[int]*followed{}, grown: map[*followed]struct{}{},
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		log.Warn("the kernel does not tell of new output (raise fs.inotify.max_user_instances): logs are looked at every second", "error", err)
		return f
	}
	f.news = os.NewFile(uintptr(fd), "inotify")
	return f
}

// Closed is closed when those who follow are to go.
func (f *Follower) Closed() <-chan struct{} { return f.closed }

// Close makes those who follow go: they come back to the next agent with their offset.
func (f *Follower) Close() { f.closeOnce.Do(func() { close(f.closed) }) }

// Run hears the kernel's news and keeps the logs until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if f.news != nil {
		running.Go(func() { f.hear(ctx) })
		defer f.news.Close() // whoever hears it is waited for after this
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if f.news == nil {
			f.all()
			pause.Reset(keepEvery)
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		f.keep(f.takeGrown())
		pause.Reset(keepEvery)
	}
}

// hear reads the kernel's news until its file is closed.
func (f *Follower) hear(ctx context.Context) {
	buf := make([]byte, newsBuffer)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		n, err := f.news.Read(buf)
		if err != nil {
			return
		}
		pause.Reset(f.tell(buf[:n]))
	}
}

// tell passes news on to those who follow, and says how long to gather the next.
func (f *Follower) tell(news []byte) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(news) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&news[0]))
		news = news[min(len(news), unix.SizeofInotifyEvent+int(e.Len)):]
		if e.Mask&unix.IN_Q_OVERFLOW != 0 { // some news were lost: all may have grown
			for _, l := range f.logs {
				f.grew(l)
			}
			continue
		}
		if l, ok := f.watches[int(e.Wd)]; ok {
			f.grew(l)
		}
	}
	if f.viewers == 0 {
		return settleUnseen
	}
	return settle
}

func (f *Follower) all() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.logs {
		f.grew(l)
	}
}

// grew tells a log's viewers and has the keeper look. The caller holds the mutex.
func (f *Follower) grew(l *followed) {
	l.tell()
	if l.kept {
		f.grown[l] = struct{}{}
		f.rouse()
	}
}

func (f *Follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (l *followed) tell() {
	if l.viewers > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (f *Follower) takeGrown() []followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]followed, 0, len(f.grown))
	for l := range f.grown {
		all = append(all, *l)
	}
	clear(f.grown)
	return all
}

// keep notes the times of logs that grew and bounds them.
func (f *Follower) keep(grown []followed) {
	now := time.Now()
	for _, l := range grown {
		if err := errs.Wrap("console.keep", keepLog(l.path, l.limit, now)); err != nil {
			f.log.Warn("a log is not kept as it should be", "path", l.path, "error", err)
		}
	}
}

// keepLog notes how far a log had come and gives back what is beyond its limit.
func keepLog(path string, limit int64, now time.Time) error {
	fi, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // not there yet, or any more
	}
	if err := stamp(path, fi.Size(), now, true); err != nil {
		return err
	}
	return trim(path, fi.Size(), limit)
}

// Keep has a log's times noted and its size bounded to limit bytes, from now on. Of
// what it holds already the time is told only where seen is true: then it was
// written just now.
func (f *Follower) Keep(path string, limit int64, seen bool) {
	if fi, err := os.Stat(path); err == nil {
		if err := stamp(path, fi.Size(), time.Now(), seen); err != nil {
			f.log.Warn("the times of a log are not noted", "path", path, "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.get(path)
	l.kept, l.limit = true, limit
	f.watch(l)
	f.grew(l)
}

// Release ends what Keep began, after a last look.
func (f *Follower) Release(path string) {
	f.mu.Lock()
	l, ok := f.logs[path]
	if !ok || !l.kept {
		f.mu.Unlock()
		return
	}
	last := *l
	l.kept = false
	delete(f.grown, l)
	f.drop(l)
	f.mu.Unlock()
	f.keep([]followed{last})
}

// Wake has those who follow a log look again, as when its instance's state changed.
func (f *Follower) Wake(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.logs[path]; ok {
		f.watch(l)
		l.tell()
	}
}

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
		if wd, err = unix.InotifyAddWatch(int(fd), l.path, unix.IN_MODIFY); err == nil {
			l.watch, f.watches[wd] = wd, l
		}
	})
	if err != nil && !os.IsNotExist(err) {
		f.log.Warn("a log is not followed (raise fs.inotify.max_user_watches)", "path", l.path, "error", err)
	}
}

// drop forgets a log that nobody wants any more.
func (f *Follower) drop(l *followed) {
	if l.kept || l.viewers > 0 || f.logs[l.path] != l {
		return
	}
	delete(f.logs, l.path)
	if l.watch < 0 {
		return
	}
	delete(f.watches, l.watch)
	if conn, err := f.news.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(l.watch)) })
	}
}
