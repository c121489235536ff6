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
	// batchDelay is how long writes are collected before viewers are woken. It limits the cost of
	// many small writes.
	batchDelay = 4 * time.Millisecond
	// idleBatchDelay replaces batchDelay while there is no viewer.
	idleBatchDelay = 20 * time.Millisecond
	// maintainInterval is the pause between two rounds of maintenance.
	maintainInterval = time.Second
	// eventBufferBytes is the size of the buffer for inotify events.
	eventBufferBytes = 64 << 10
)

// Follower wakes the viewers of logs when a log grows. An agent has one for all its logs. It
// uses inotify, so a silent log costs nothing. It buffers no output: viewers read from the
// file at their own speed.
//
// It also records the times of the logs passed to Maintain and limits their size. Create it with
// NewFollower and call Run once.
type Follower struct {
	inotify *os.File // the inotify file; nil if inotify is unavailable
	log     *slog.Logger
	// add is unix.InotifyAddWatch, except in tests.
	add func(fd int, path string, mask uint32) (wd int, err error)
	// stamping is held while a log's times are written.
	stamping sync.Mutex

	mu sync.Mutex
	// polling is true if inotify does not work. refused counts the logs that inotify cannot
	// watch. These logs are polled.
	polling bool
	refused int
	// warned holds the warnings that were already logged.
	warned  map[string]bool
	viewers int
	logs    map[string]*followedLog
	watches map[int]*followedLog
	// grown are the maintained logs that grew since the last round of maintenance.
	grown map[*followedLog]struct{}

	wake      chan struct{}
	closeOnce sync.Once
	closed    chan struct{}
}

// followedLog is a log. The follower's mutex guards it.
type followedLog struct {
	path string
	// watch is its inotify watch descriptor, or -1. refused is true if inotify refused to
	// watch it.
	watch      int
	refused    bool
	maintained bool
	limit      int64
	// lines counts the lines of a maintained log.
	lines   *lineCounter
	viewers int
	changed chan struct{}
}

// NewFollower returns a follower. If inotify is unavailable, it polls the logs.
func NewFollower(log *slog.Logger) *Follower {
	f := &Follower{
		log: log, logs: map[string]*followedLog{}, watches: map[int]*followedLog{}, grown: map[*followedLog]struct{}{},
		add: unix.InotifyAddWatch, warned: map[string]bool{}, wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		log.Warn("inotify is unavailable: logs are polled every second; raise fs.inotify.max_user_instances", "error", err)
		f.polling = true
		return f
	}
	f.inotify = os.NewFile(uintptr(fd), "inotify")
	return f
}

// Closed is closed when viewers have to disconnect.
func (f *Follower) Closed() <-chan struct{} { return f.closed }

// Close disconnects all viewers. They reconnect to the next agent with their offset.
func (f *Follower) Close() { f.closeOnce.Do(func() { close(f.closed) }) }

// Run handles inotify events and maintains the logs until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if f.inotify != nil {
		running.Go(func() { f.readEvents(ctx) })
		defer f.inotify.Close() // makes readEvents return
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if !f.poll() {
			select {
			case <-f.wake:
			case <-ctx.Done():
				return
			}
		}
		f.maintain(f.takeGrown())
		pause.Reset(maintainInterval)
	}
}

// readEvents reads inotify events until the file is closed.
func (f *Follower) readEvents(ctx context.Context) {
	buf := make([]byte, eventBufferBytes)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		n, err := f.inotify.Read(buf)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			f.log.Error("inotify failed: logs are polled every second until the agent is restarted", "error", err)
			f.startPolling()
			return
		}
		pause.Reset(f.dispatch(buf[:n]))
	}
}

// startPolling makes the follower poll all logs.
func (f *Follower) startPolling() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polling = true
	f.wakeMaintenance()
}

// poll marks the logs that inotify does not watch as grown. It returns false if there are none.
func (f *Follower) poll() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.polling && f.refused == 0 {
		return false
	}
	for _, l := range f.logs {
		if f.polling || l.refused {
			f.watch(l) // inotify may accept it now
			f.markGrown(l)
		}
	}
	return true
}

// dispatch wakes the viewers of the logs in inotify events and returns how long to collect the next.
func (f *Follower) dispatch(events []byte) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&events[0]))
		events = events[min(len(events), unix.SizeofInotifyEvent+int(e.Len)):]
		if e.Mask&unix.IN_Q_OVERFLOW != 0 { // events were lost: any log may have grown
			for _, l := range f.logs {
				f.markGrown(l)
			}
			continue
		}
		if l, ok := f.watches[int(e.Wd)]; ok {
			f.markGrown(l)
		}
	}
	if f.viewers == 0 {
		return idleBatchDelay
	}
	return batchDelay
}

// markGrown wakes a log's viewers and schedules its maintenance. f.mu is held.
func (f *Follower) markGrown(l *followedLog) {
	l.wakeViewers()
	if l.maintained {
		f.grown[l] = struct{}{}
		f.wakeMaintenance()
	}
}

func (f *Follower) wakeMaintenance() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (l *followedLog) wakeViewers() {
	if l.viewers > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// Wake wakes the viewers of a log, as when its instance's state changed.
func (f *Follower) Wake(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.logs[path]; ok {
		f.watch(l)
		l.wakeViewers()
	}
}
