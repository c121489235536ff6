package configexport

import (
	"time"

	"golang.org/x/sys/unix"
)

// AfterRead sets a function that is called after each read of a file.
func (r *Request) AfterRead(do func(name string)) { r.afterRead = do }

// Now sets the clock.
func (r *Request) Now(do func() time.Time) { r.now = do }

// Recent reports whether a file with that modification time counts as just modified.
func Recent(modified, now time.Time) bool {
	return state{modified: unix.NsecToTimespec(modified.UnixNano())}.recent(now)
}
