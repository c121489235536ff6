package deadline

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Moment is a time of the kernel's boot clock, in nanoseconds since the boot. 0 has always passed.
type Moment int64

// Now reads the boot clock.
func Now() Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it is there since Linux 2.6.39
	return Moment(ts.Nano())
}

// Add is the moment a duration later.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// Sub is the time from o to m.
func (m Moment) Sub(o Moment) time.Duration { return time.Duration(m - o) }

// Alarm rings at a moment, also when the machine slept through it. Set is to be
// called by one goroutine; Close ends the alarm.
type Alarm struct {
	file  *os.File
	fd    int
	rings chan struct{}
	done  chan struct{}
}

// NewAlarm makes an alarm that is not set. Unavailable when the system is out of descriptors.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "deadline.NewAlarm", err)
	}
	a := &Alarm{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd, rings: make(chan struct{}, 1), done: make(chan struct{})}
	go a.listen()
	return a, nil
}

func (a *Alarm) listen() {
	defer close(a.done)
	var count [8]byte
	for {
		if _, err := a.file.Read(count[:]); err != nil || binary.NativeEndian.Uint64(count[:]) == 0 {
			return
		}
		select {
		case a.rings <- struct{}{}:
		default:
		}
	}
}

// Rings tells that a moment the alarm was set to has come. Look at the clock: it
// may be about an earlier setting.
func (a *Alarm) Rings() <-chan struct{} { return a.rings }

// Set makes the alarm ring at a moment; at once when it has passed.
func (a *Alarm) Set(m Moment) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(m), 1))} // 0 would switch it off
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)     // it cannot fail with these arguments
}

// Close switches the alarm off.
func (a *Alarm) Close() {
	_ = a.file.Close()
	<-a.done
}
