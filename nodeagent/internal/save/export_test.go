package save

import (
	"time"

	"golang.org/x/sys/unix"
)

// AfterRead has do called whenever a file was read.
func (r *Request) AfterRead(do func(name string)) { r.afterRead = do }

// Now has the time be what do says.
func (r *Request) Now(do func() time.Time) { r.now = do }

// Fresh reports whether a file that was modified then may be written to under the same time.
func Fresh(modified, now time.Time) bool {
	return state{modified: unix.NsecToTimespec(modified.UnixNano())}.fresh(now)
}
