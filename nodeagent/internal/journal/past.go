package journal

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// PastFile is where a run's directory says under which past the run began.
const PastFile = "past"

// maxSince bounds the names in Past.since.
const maxSince = 32

// Past is which history of the store this directory has been part of, without a
// look at any clock. Its name changes whenever the store turns out to be another
// one, emptied, or from a backup. A run notes the name it began under: only while
// that is still the name can the store be expected to know of the run.
type Past struct {
	path    string
	newName func() string
	log     *slog.Logger

	mu   sync.Mutex
	name string
	// since are the names since an operator deleted the node; empty if the node was never
	// deleted. A run that began under any other name was given up with the node.
	since []string
	// last is the revision of the node's record as this directory wrote it last; 0 before.
	last int64
	// reported is the revision of a report of the node that was written after the latest run
	// began, as far as one was; 0 before. The store of then knew of all runs.
	reported int64
	// begun counts the runs that this process began.
	begun uint64
}

// Past is the directory's. One that cannot be read begins anew.
func (j *Journal) Past(newName func() string, log *slog.Logger) *Past {
	p := &Past{path: filepath.Join(filepath.Dir(j.dir), PastFile), newName: newName, log: log}
	b, err := os.ReadFile(p.path)
	first, since, _ := strings.Cut(string(b), "\n")
	if err == nil {
		_, err = fmt.Sscan(first, &p.name, &p.last)
	}
	if err != nil || !identityForm.MatchString(p.name) {
		p.name, p.last = newName(), 0
		return p
	}
	if _, err := fmt.Sscan(first, new(string), new(int64), &p.reported); err != nil { // an older agent wrote none
		p.reported = 0
	}
	p.since = strings.Fields(since)
	return p
}

// Name is the present past's name.
func (p *Past) Name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

// Begin is Name for a run that begins now.
func (p *Past) Begin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	return p.name
}

// Begun counts the runs that began; see Reported.
func (p *Past) Begun() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// Reported tells that a report of the node was written at a revision after the latest run
// had begun.
func (p *Past) Reported(rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reported = rev
	p.keep()
}

// Found tells the revision of the node's report at a join, 0 for none. The agent alone
// writes it, and never removes it: where it is older than the one that was written, the
// store has forgotten something.
func (p *Past) Found(report int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if report < p.reported {
		p.turn()
		p.keep()
	}
}

// Wrote tells that the node's record was written at a revision, in place of the one
// of a revision before, 0 for none. Nobody else writes it: where that is not the one
// written last, the store has forgotten something.
func (p *Past) Wrote(before, rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before != p.last {
		p.turn()
	}
	p.last = rev
	p.keep()
}

// Deleted tells that an operator had the node's record removed that stood at a revision.
// It reports whether that is the one written last: then the store has lost nothing, and
// Wrote takes it for the one before. Every run that began before was given up.
func (p *Past) Deleted(record int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if record == 0 || record != p.last {
		return false
	}
	p.name = p.newName()
	p.since, p.reported = []string{p.name}, 0
	return true
}

// GivenUp reports whether what began under a name was given up when an operator deleted
// the node.
func (p *Past) GivenUp(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.since) > 0 && !slices.Contains(p.since, name)
}

// Rewound tells that the store went back in time.
func (p *Past) Rewound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn()
	p.keep()
}

func (p *Past) turn() {
	p.name, p.reported = p.newName(), 0
	if len(p.since) > 0 {
		p.since = append(p.since, p.name)
	}
	if len(p.since) > maxSince {
		p.since = nil
	}
	p.log.Warn("the store does not remember all it was told: nothing that was begun before is stopped for want of a record")
}

// keep writes the file. What it does not say then costs the next agent certainty, no more.
func (p *Past) keep() {
	text := fmt.Appendf(nil, "%s %d %d\n", p.name, p.last, p.reported)
	if len(p.since) > 0 {
		text = fmt.Appendf(text, "%s\n", strings.Join(p.since, " "))
	}
	if err := replace(p.path, text, flushed); err != nil {
		p.log.Warn("which past of the store this directory has seen is not noted", "error", err)
	}
}
