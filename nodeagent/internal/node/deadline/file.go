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

// Deadline is when a node's exclusive instances have to be gone.
type Deadline struct {
	// Boot identifies the boot of the clock of At.
	Boot string
	// At is one TTL after the last confirmed keep-alive was sent.
	At Moment
	// Margin is how long before At instances begin to stop. They are killed at half of it.
	Margin time.Duration
}

// StopAt is when instances begin to stop.
func (d Deadline) StopAt() Moment { return d.At.Add(-d.Margin) }

// KillAt is when the remaining instances are killed.
func (d Deadline) KillAt() Moment { return d.At.Add(-d.Margin / 2) }

// Stage is the state of a deadline.
type Stage int

// The stages, in order.
const (
	Valid    Stage = iota // exclusive instances may start and run
	Stopping              // they may not start and are being stopped
	Lapsed                // none may run
)

// Stage is the stage at a moment.
func (d Deadline) Stage(now Moment) Stage {
	switch {
	case now < d.StopAt():
		return Valid
	case now < d.KillAt():
		return Stopping
	}
	return Lapsed
}

// size is the length of a record in bytes. It is written and read at once.
const size = 160

// encode returns the record: a readable line with a checksum.
func (d Deadline) encode() []byte {
	text := fmt.Sprintf("orrery-deadline 1 %s %d %d", d.Boot, d.At, d.Margin)
	text += fmt.Sprintf(" %08x", crc32.ChecksumIEEE([]byte(text)))
	b := bytes.Repeat([]byte(" "), size)
	copy(b, text)
	b[size-1] = '\n'
	return b
}

// decode parses a record. ok is false if encode did not write it.
func decode(b []byte) (d Deadline, ok bool) {
	var sum uint32
	n, err := fmt.Sscanf(string(b), "orrery-deadline 1 %s %d %d %x", &d.Boot, &d.At, &d.Margin, &sum)
	if n != 4 || err != nil || !bytes.Equal(d.encode(), b) {
		return Deadline{}, false
	}
	return d, true
}

// File is the file that guards read. It is safe for concurrent use.
type File struct{ f *os.File }

// Create opens the file for writing and creates it if necessary. Unavailable if it cannot be
// written.
func Create(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	return &File{f}, errs.WrapAs(errs.Unavailable, "deadline.Create", err)
}

// Load opens the file for reading. NotFound if it does not exist.
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WrapAs(errs.NotFound, "deadline.Load", err)
	}
	return &File{f}, errs.WrapAs(errs.Unavailable, "deadline.Load", err)
}

// Close closes the file.
func (f *File) Close() { _ = f.f.Close() }

// Write replaces the deadline. It need not reach the disk, because no instance survives a
// power cut. Unavailable if the file cannot be written.
func (f *File) Write(d Deadline) error {
	_, err := f.f.WriteAt(d.encode(), 0)
	return errs.WrapAs(errs.Unavailable, "deadline.Write", err)
}

// attempts bounds how often an invalid record is read again: it may be just being written.
const attempts = 10

// Read reads the deadline. Internal if the file does not contain a valid one.
func (f *File) Read() (Deadline, error) {
	b := make([]byte, size)
	for range attempts {
		n, err := f.f.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return Deadline{}, errs.WrapAs(errs.Unavailable, "deadline.Read", err)
		}
		if d, ok := decode(b[:n]); ok {
			return d, nil
		}
		time.Sleep(time.Millisecond)
	}
	return Deadline{}, errs.New(errs.Internal, "%s contains no valid deadline", f.f.Name())
}
