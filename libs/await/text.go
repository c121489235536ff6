package await

import (
	"bytes"
	"sync"
)

// Text is what was written to it so far: a log, or the output of a process, that
// is read while it grows. Its zero value is empty. It may not be copied.
type Text struct {
	mu      sync.Mutex
	written bytes.Buffer
}

// Write appends.
func (x *Text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.written.Write(b)
}

// String is all of it.
func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.written.String()
}
