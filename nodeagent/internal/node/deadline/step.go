package deadline

import (
	"errors"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// stepTolerance is how far the wall clock may advance beyond the boot clock between two
// readings. Less does not count as a step, because the clock is adjusted gradually.
const stepTolerance = 500 * time.Millisecond

// wallAhead returns how far the wall clock is ahead of the boot clock. The boot clock is read
// first: a pause between the readings looks like a step, but no step is missed.
func wallAhead() time.Duration {
	boot := Now()
	return time.Duration(time.Now().UnixNano() - int64(boot))
}

// steps reports when the wall clock is set.
type steps struct {
	file  *os.File
	rings chan struct{}
	done  chan struct{}
}

// newSteps watches the wall clock. Unavailable if no file descriptor is left.
func newSteps() (*steps, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "deadline.newSteps", err)
	}
	// The timer never fires. The kernel cancels it when the clock is set.
	never := unix.ItimerSpec{Value: unix.NsecToTimespec(math.MaxInt64)}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
		_ = unix.Close(fd)
		return nil, errs.WrapAs(errs.Unavailable, "deadline.newSteps", err)
	}
	s := &steps{file: os.NewFile(uintptr(fd), "timerfd"), rings: make(chan struct{}, 1), done: make(chan struct{})}
	go s.listen()
	return s, nil
}

func (s *steps) listen() {
	defer close(s.done)
	var count [8]byte
	for {
		if _, err := s.file.Read(count[:]); err != nil && !errors.Is(err, unix.ECANCELED) {
			return
		}
		select {
		case s.rings <- struct{}{}:
		default:
		}
	}
}

func (s *steps) close() {
	_ = s.file.Close()
	<-s.done
}
