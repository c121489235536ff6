package deadline

import (
	"math"
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

// newStepAlarm returns an alarm that fires when the wall clock is set. Unavailable if no file
// descriptor is left.
func newStepAlarm() (*Alarm, error) {
	a, err := newAlarm(unix.CLOCK_REALTIME)
	if err != nil {
		return nil, err
	}
	// The timer never expires. The kernel cancels it when the clock is set.
	never := unix.ItimerSpec{Value: unix.NsecToTimespec(math.MaxInt64)}
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
		a.Close()
		return nil, errs.WrapAs(errs.Unavailable, "deadline.newStepAlarm", err)
	}
	return a, nil
}
