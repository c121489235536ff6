package deadline

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Moment is a time of the kernel's boot clock in nanoseconds since boot. 0 is in the past.
type Moment int64

// Now reads the boot clock.
func Now() Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // exists since Linux 2.6.39
	return Moment(ts.Nano())
}

// Add returns the moment d after m.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// Sub returns the duration from o to m.
func (m Moment) Sub(o Moment) time.Duration { return time.Duration(m - o) }

// Alarm fires at a moment, also if the machine was suspended then. Only one goroutine may call
// Set. Close releases it.
type Alarm struct {
	file  *os.File
	fd    int
	rings chan struct{}
	done  chan struct{}
}

// NewAlarm returns an alarm that is not set. Unavailable if no file descriptor is left.
func NewAlarm() (*Alarm, error) { return newAlarm(unix.CLOCK_BOOTTIME) }

func newAlarm(clock int) (*Alarm, error) {
	fd, err := unix.TimerfdCreate(clock, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "deadline.NewAlarm", err)
	}
	a := &Alarm{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd, rings: make(chan struct{}, 1), done: make(chan struct{})}
	go a.listen()
	return a, nil
}

func (a *Alarm) listen() {
	defer close(a.done)
	var count [8]byte
	for {
		if _, err := a.file.Read(count[:]); err != nil && !errors.Is(err, unix.ECANCELED) { // canceled: see newStepAlarm
			return
		}
		select {
		case a.rings <- struct{}{}:
		default:
		}
	}
}

// Rings receives a value when the alarm fires. Check the clock then, because the value may
// belong to an earlier setting.
func (a *Alarm) Rings() <-chan struct{} { return a.rings }

// Set makes the alarm fire at a moment, or at once if it has passed.
func (a *Alarm) Set(m Moment) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(m), 1))} // 0 would disarm it
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)     // cannot fail with these arguments
}

// Close disarms and releases the alarm.
func (a *Alarm) Close() {
	_ = a.file.Close()
	<-a.done
}
