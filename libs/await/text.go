package await

import (
	"bytes"
	"sync"
)

// Text collects the output of a log or process while a test reads it. The zero value is empty. It
// must not be copied and is safe for concurrent use.
type Text struct {
	mu      sync.Mutex
	written bytes.Buffer
}

// Write appends b.
func (x *Text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.written.Write(b)
}

// String returns everything written so far.
func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.written.String()
}
