package console

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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
	// add asks the kernel to tell of a file; unix.InotifyAddWatch but for tests.
	add func(fd int, path string, mask uint32) (wd int, err error)

	// stamping is held while a log's times are written.
	stamping sync.Mutex

	mu sync.Mutex
	// deaf is true when the kernel tells of nothing; refused counts the logs it does not
	// tell of. Both are looked at every now and then instead.
	deaf    bool
	refused int
	// told are the complaints that are made once only.
	told    map[string]bool
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
	// watch is the kernel's number for it, -1 while it is not watched; refused is true when
	// the kernel would not.
	watch   int
	refused bool
	kept    bool
	limit   int64
	// lines counts those of a kept log.
	lines   *lineCount
	viewers int
	changed chan struct{}
}

// NewFollower makes a follower. Where the kernel refuses to tell of writes, logs are
// looked at every now and then instead.
func NewFollower(log *slog.Logger) *Follower {
	f := &Follower{
		log: log, logs: map[string]*followed{}, watches: map[int]*followed{}, grown: map[*followed]struct{}{},
		add: unix.InotifyAddWatch, told: map[string]bool{}, wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		log.Warn("the kernel does not tell of new output (raise fs.inotify.max_user_instances): logs are looked at every second", "error", err)
		f.deaf = true
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
		if !f.look() {
			select {
			case <-f.wake:
			case <-ctx.Done():
				return
			}
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
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			f.log.Error("the kernel tells of new output no more: logs are looked at every second until the agent is restarted", "error", err)
			f.deafen()
			return
		}
		pause.Reset(f.tell(buf[:n]))
	}
}

// deafen has all logs looked at from now on.
func (f *Follower) deafen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = true
	f.rouse()
}

// look takes the logs of which the kernel does not tell for grown; false when there are
// none and may be none before somebody rouses the keeper.
func (f *Follower) look() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.deaf && f.refused == 0 {
		return false
	}
	for _, l := range f.logs {
		if f.deaf || l.refused {
			f.watch(l) // it may by now
			f.grew(l)
		}
	}
	return true
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

// Wake has those who follow a log look again, as when its instance's state changed.
func (f *Follower) Wake(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.logs[path]; ok {
		f.watch(l)
		l.tell()
	}
}
