// Package record holds what the instances themselves record during a fault run. Each run of
// a workload writes its own file, and checks trust only these files about it.
//
// A file has a line of JSON about the run, a line of fixed width with the last sign of
// life, which is overwritten repeatedly, and a line of JSON for each event. Times are
// nanoseconds of the machine's boot clock, which clock steps do not affect and all
// processes share. A killed run counts until its last sign of life; it may have lived a
// little longer.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Every is the interval between two signs of life.
const Every = 20 * time.Millisecond

// Storm is a file in a recorder's directory. While it exists, runs with a crash time crash.
const Storm = "storm"

// suffix is the suffix of a recorder's files.
const suffix = ".run"

// Time is a time of the boot clock, in nanoseconds.
type Time int64

// Now returns the current time.
func Now() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // only kernels older than any supported one lack it
	}
	return Time(ts.Nano())
}

// Header is what a run records at its start.
type Header struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
	Group    string `json:"group"`
	Node     string `json:"node"`
	PID      int    `json:"pid"`
	// Port is 0 when it has none.
	Port   int  `json:"port"`
	Static bool `json:"static,omitempty"`
	// Earlier is the number of earlier runs in the same directory; for static instances
	// only.
	Earlier int `json:"earlier,omitempty"`
	// Unsaved means that the directory was not writable, so that the next run finds no
	// higher number.
	Unsaved bool `json:"unsaved,omitempty"`
	Started Time `json:"started"`
}

// Event is an event of a run.
type Event string

// Events of a run.
const (
	// Listening: the port is open.
	Listening Event = "listening"
	// PortTaken: another process has the port.
	PortTaken Event = "port taken"
	// Refused: another run of the same static instance lives.
	Refused Event = "refused"
	// Asked: the run was asked to stop, on the console or by a signal.
	Asked Event = "asked to stop"
	// WrongFiles: the directory differs from the template.
	WrongFiles Event = "wrong files"
	// Failing: the run crashes by itself now.
	Failing Event = "failing"
)

// Note is an event with its time.
type Note struct {
	At    Time  `json:"at"`
	Event Event `json:"event"`
}

// Run is the content of one file.
type Run struct {
	Header
	// Alive is the last sign of life; at least Started.
	Alive Time
	Notes []Note
}

// Has reports whether an event was recorded, and when first.
func (r Run) Has(e Event) (Time, bool) {
	for _, n := range r.Notes {
		if n.Event == e {
			return n.At, true
		}
	}
	return 0, false
}

// String names the run for people.
func (r Run) String() string {
	return fmt.Sprintf("%s (%s) pid %d on %s", r.Name, r.Instance, r.PID, r.Node)
}

// Writer writes a run's file. It is not safe for concurrent use.
type Writer struct {
	file *os.File
	slot int64 // offset of the sign of life
	end  int64
}

// Create creates the file of a run.
func Create(dir string, h Header) (*Writer, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%d%s", h.Instance, h.PID, h.Started, suffix)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, slot: int64(len(head)) + 1}
	first := fmt.Appendf(nil, "%s\n%020d\n", head, h.Started)
	w.end = int64(len(first))
	if _, err := f.WriteAt(first, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// Alive writes a sign of life.
func (w *Writer) Alive(now Time) error {
	_, err := w.file.WriteAt(fmt.Appendf(nil, "%020d", now), w.slot)
	return err
}

// Note appends an event.
func (w *Writer) Note(n Note) error {
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	written, err := w.file.WriteAt(append(line, '\n'), w.end)
	w.end += int64(written)
	return err
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Read reads all runs of a directory, sorted by start. It omits runs that were killed while
// writing their first lines.
func Read(dir string) ([]Run, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var out []Run
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if r, ok := parse(b); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Run) int { return int(a.Started - b.Started) })
	return out, nil
}

func parse(b []byte) (Run, bool) {
	lines := bytes.Split(b, []byte("\n"))
	if len(lines) < 3 {
		return Run{}, false
	}
	var r Run
	if json.Unmarshal(lines[0], &r.Header) != nil {
		return Run{}, false
	}
	if _, err := fmt.Sscanf(string(lines[1]), "%d", &r.Alive); err != nil {
		return Run{}, false
	}
	for _, line := range lines[2:] {
		var n Note
		if json.Unmarshal(line, &n) == nil {
			r.Notes = append(r.Notes, n)
		}
	}
	return r, true
}
