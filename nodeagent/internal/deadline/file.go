package deadline

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Deadline is until when a node's exclusive instances may run.
type Deadline struct {
	// Boot identifies the kernel whose clock At is of.
	Boot string
	// At is a TTL after the last confirmed keep-alive was sent.
	At Moment
	// Margin is how long before it stopping begins; half of it is left when it has to be over.
	Margin time.Duration
}

// StopAt is when instances begin to be stopped.
func (d Deadline) StopAt() Moment { return d.At.Add(-d.Margin) }

// KillAt is when whatever is left is killed.
func (d Deadline) KillAt() Moment { return d.At.Add(-d.Margin / 2) }

// Stage is what a deadline means for exclusive instances.
type Stage int

// The stages, in their order.
const (
	Valid    Stage = iota // they may start and run
	Stopping              // they may not start any more and are being stopped
	Lapsed                // none may live
)

// Stage is what the deadline means at a moment.
func (d Deadline) Stage(now Moment) Stage {
	switch {
	case now < d.StopAt():
		return Valid
	case now < d.KillAt():
		return Stopping
	}
	return Lapsed
}

// size is the length of a record: it is written and read in one piece.
const size = 160

// encode makes the record: a line a person can read, with its checksum.
func (d Deadline) encode() []byte {
	text := fmt.Sprintf("orrery-deadline 1 %s %d %d", d.Boot, d.At, d.Margin)
	text += fmt.Sprintf(" %08x", crc32.ChecksumIEEE([]byte(text)))
	b := bytes.Repeat([]byte(" "), size)
	copy(b, text)
	b[size-1] = '\n'
	return b
}

// decode reads a record. ok is false for everything that encode did not write.
func decode(b []byte) (d Deadline, ok bool) {
	var sum uint32
	n, err := fmt.Sscanf(string(b), "orrery-deadline 1 %s %d %d %x", &d.Boot, &d.At, &d.Margin, &sum)
	if n != 4 || err != nil || !bytes.Equal(d.encode(), b) {
		return Deadline{}, false
	}
	return d, true
}

// File is the file that guards read. Its methods may be called from any goroutine.
type File struct{ f *os.File }

// Create opens the file for writing, making it if it is missing. Unavailable when
// it cannot be written.
func Create(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	return &File{f}, errs.As(errs.Unavailable, "deadline.Create", err)
}

// Load opens the file for reading. NotFound when it is missing.
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.As(errs.NotFound, "deadline.Load", err)
	}
	return &File{f}, errs.As(errs.Unavailable, "deadline.Load", err)
}

// Close closes the file.
func (f *File) Close() { _ = f.f.Close() }

// Write replaces the deadline. It need not reach the disk: after a power cut no
// instance lives. Unavailable when the file cannot be written.
func (f *File) Write(d Deadline) error {
	_, err := f.f.WriteAt(d.encode(), 0)
	return errs.As(errs.Unavailable, "deadline.Write", err)
}

// attempts is how often a record that makes no sense is read again: it may be
// about to be written.
const attempts = 10

// Read reads the deadline. Internal when the file holds none.
func (f *File) Read() (Deadline, error) {
	b := make([]byte, size)
	for range attempts {
		n, err := f.f.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return Deadline{}, errs.As(errs.Unavailable, "deadline.Read", err)
		}
		if d, ok := decode(b[:n]); ok {
			return d, nil
		}
		time.Sleep(time.Millisecond)
	}
	return Deadline{}, errs.New(errs.Internal, "%s holds no deadline", f.f.Name())
}
