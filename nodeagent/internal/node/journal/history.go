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

// HistoryFile is the file in a run's directory with the name of the history it began under.
const HistoryFile = "past"

// maxSince bounds the names in History.since.
const maxSince = 32

// History identifies the history of the store that this directory has been part of, without
// using a clock. Its name changes whenever the store was replaced, emptied or restored from a
// backup. A run stores the name under which it began. Only while the name is unchanged can the
// store be expected to know the run.
type History struct {
	path    string
	newName func() string
	log     *slog.Logger

	mu   sync.Mutex
	name string
	// since are the names since an operator deleted the node; empty if that never happened. A
	// run that began under any other name was abandoned with the node.
	since []string
	// last is the revision at which this directory last wrote the node's record; 0 before.
	last int64
	// reported is the revision of a report that was written after the latest run began; 0 if
	// there is none. The store knew all runs at that revision.
	reported int64
	// begun counts the runs that began in this process.
	begun uint64
}

// History loads the directory's History. If it cannot be read, a new history begins.
func (j *Journal) History(newName func() string, log *slog.Logger) *History {
	h := &History{path: filepath.Join(filepath.Dir(j.dir), HistoryFile), newName: newName, log: log}
	b, err := os.ReadFile(h.path)
	first, since, _ := strings.Cut(string(b), "\n")
	if err == nil {
		_, err = fmt.Sscan(first, &h.name, &h.last)
	}
	if err != nil || !identityForm.MatchString(h.name) {
		h.name, h.last = newName(), 0
		return h
	}
	if _, err := fmt.Sscan(first, new(string), new(int64), &h.reported); err != nil { // written by an older agent
		h.reported = 0
	}
	h.since = strings.Fields(since)
	return h
}

// Name is the current name.
func (h *History) Name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name
}

// BeginRun counts a run that begins now and returns the current name.
func (h *History) BeginRun() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun++
	return h.name
}

// RunsBegun counts the runs that began; see Reported.
func (h *History) RunsBegun() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun
}

// Reported records that a report of the node was written at a revision after the latest run
// began.
func (h *History) Reported(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = rev
	h.save()
}

// ReportFound compares the revision of the node's report at a join, 0 for none, with the last one.
// Only the agent writes the report and nothing removes it, so an older revision means that the
// store has lost data.
func (h *History) ReportFound(report int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if report < h.reported {
		h.rename()
		h.save()
	}
}

// RecordWritten records that the node's record was written at revision rev and replaced the one of
// revision before, 0 for none. Only the agent writes it, so any other previous revision means
// that the store has lost data.
func (h *History) RecordWritten(before, rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before != h.last {
		h.rename()
	}
	h.last = rev
	h.save()
}

// RecordDeleted records that an operator deleted the node's record of a revision. It returns true if
// that was the last record: the store has lost nothing, and RecordWritten accepts that revision as the
// previous one. All earlier runs are abandoned.
func (h *History) RecordDeleted(record int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if record == 0 || record != h.last {
		return false
	}
	h.name = h.newName()
	h.since, h.reported = []string{h.name}, 0
	return true
}

// Abandoned reports whether a run that began under a name was abandoned when an operator deleted
// the node.
func (h *History) Abandoned(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.since) > 0 && !slices.Contains(h.since, name)
}

// Rewound records that the store went back in time.
func (h *History) Rewound() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rename()
	h.save()
}

func (h *History) rename() {
	h.name, h.reported = h.newName(), 0
	if len(h.since) > 0 {
		h.since = append(h.since, h.name)
	}
	if len(h.since) > maxSince {
		h.since = nil
	}
	h.log.Warn("the store has lost data: instances that began earlier are not stopped for lack of a record")
}

// save writes the file. After a failure the next agent stops fewer orphans.
func (h *History) save() {
	text := fmt.Appendf(nil, "%s %d %d\n", h.name, h.last, h.reported)
	if len(h.since) > 0 {
		text = fmt.Appendf(text, "%s\n", strings.Join(h.since, " "))
	}
	if err := replace(h.path, text, flushed); err != nil {
		h.log.Warn("cannot write which history of the store this directory has seen", "error", err)
	}
}
