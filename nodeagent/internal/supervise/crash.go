package supervise

import (
	"bytes"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/crash"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

// record has the recorder write down the ends that the machine has noted. It reads the last
// lines before it returns: the next run writes to the same file.
func (i *Instance) record() {
	for _, c := range i.entry.Machine.Unrecorded {
		if i.recording[c.ID] {
			continue
		}
		if i.recording == nil {
			i.recording = map[string]bool{}
		}
		i.recording[c.ID] = true
		tail, late, truncated := i.tail(crash.MaxTail, c.At.Add(-time.Second))
		dir := i.kit.Workspace.Dir(i.entry.Machine.Placement, i.entry.Machine.Plan)
		i.helpers.Go(func() {
			read := crash.Read(crash.End{Reason: c.Reason, Exit: c.Exit, Tail: tail, Late: late, Own: []string{dir, c.Name, string(c.Instance)}})
			c.Category, c.Cause, c.Fingerprint = read.Category, read.Cause, read.Fingerprint
			c.Last = fleet.LastLines(tail)
			i.kit.Record(c, fleet.NewCrashTail(c.ID, tail, truncated))
			i.Send(machine.Recorded{ID: c.ID})
		})
	}
	for id := range i.recording {
		if !i.noted(id) {
			delete(i.recording, id)
		}
	}
}

func (i *Instance) noted(id string) bool {
	for _, c := range i.entry.Machine.Unrecorded {
		if c.ID == id {
			return true
		}
	}
	return false
}

// tail returns the last n lines of the latest run, or as many as are kept. late is how many
// of them the run printed at since or later; all of them if their times are not known.
// truncated reports whether the run printed others before them.
func (i *Instance) tail(n int, since time.Time) (lines []string, late int, truncated bool) {
	path := i.kit.LogPath(i.id)
	end := size(path)
	from := max(i.entry.LogFrom, end-2*fleet.MaxCrashBytes)
	text, _, err := console.Read(path, from, int(max(0, end-from)))
	if err != nil {
		i.log.Warn("what it printed last is not known", "error", err)
		return nil, 0, false
	}
	earlier := min(max(0, console.Since(path, since)-from), int64(len(text)))
	lately := bytes.Count(text[earlier:], []byte("\n"))
	if !bytes.HasSuffix(text, []byte("\n")) && int(earlier) < len(text) {
		lately++ // the unfinished last line
	}
	cut := from > i.entry.LogFrom
	if cut { // of the first line only the end may be here, by which a secret in it is not told
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	if masked, ok := i.maskedTail(string(text)); ok { // before it is lines: a secret may have several
		lines, more := crash.Lines([]byte(masked), n)
		return lines, min(lately, len(lines)), cut || more
	}
	i.log.Warn("what it printed last is not kept: its secrets are not known any more, and may be in it")
	return nil, 0, len(text) > 0
}

// size is how much an instance has printed.
func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// explain adds to the end of a run what its shell said of a command it could not run.
func (i *Instance) explain(e machine.Event) machine.Event {
	end, ok := e.(machine.Exited)
	if !ok || !end.Exit.Known || end.Exit.Code != crash.CodeMissing && end.Exit.Code != crash.CodeNotExecutable {
		return e
	}
	const enough = 20 // lines: a shell says so last
	tail, _, _ := i.tail(enough, time.Time{})
	if reason, message, ok := crash.Refused(end.Exit.Code, tail); ok {
		end.Refused = &machine.Refusal{Reason: reason, Message: message}
	}
	return end
}
