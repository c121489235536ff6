package driver

import (
	"bytes"
	"os"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/crash"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// recordCrashes passes the machine's unrecorded ends to the recorder. It reads the last lines
// before it returns, because the next run writes to the same file.
func (i *Instance) recordCrashes() {
	for _, c := range i.entry.Machine.Unrecorded {
		if i.recording[c.ID] {
			continue
		}
		if i.recording == nil {
			i.recording = map[string]bool{}
		}
		i.recording[c.ID] = true
		tail, late, truncated := i.tail(crash.MaxTail, c.At.Add(-time.Second))
		dir := i.deps.Workspace.Dir(i.entry.Machine.Placement, i.entry.Machine.Plan)
		i.helpers.Go(func() {
			read := crash.Read(crash.End{Reason: c.Reason, Exit: c.Exit, Tail: tail, Late: late, Own: []string{dir, c.Name, string(c.Instance)}})
			c.Category, c.Cause, c.Fingerprint = read.Category, read.Cause, read.Fingerprint
			c.Last = reports.LastLines(tail)
			i.deps.Record(c, reports.NewCrashTail(c.ID, tail, truncated))
			i.Send(machine.Recorded{ID: c.ID})
		})
	}
	for id := range i.recording {
		if !slices.ContainsFunc(i.entry.Machine.Unrecorded, func(c reports.Crash) bool { return c.ID == id }) {
			delete(i.recording, id)
		}
	}
}

// tail returns the last n lines of the latest run, or as many as are kept. late counts those
// printed at or after since, or all of them if their times are unknown. truncated reports
// whether the run printed more lines before them.
func (i *Instance) tail(n int, since time.Time) (lines []string, late int, truncated bool) {
	path := i.deps.LogPath(i.id)
	end := size(path)
	from := max(i.entry.LogFrom, end-2*reports.MaxCrashBytes)
	text, _, err := console.Read(path, from, int(max(0, end-from)))
	if err != nil {
		i.log.Warn("cannot read the last output", "error", err)
		return nil, 0, false
	}
	earlier := min(max(0, console.Since(path, since)-from), int64(len(text)))
	lately := bytes.Count(text[earlier:], []byte("\n"))
	if !bytes.HasSuffix(text, []byte("\n")) && int(earlier) < len(text) {
		lately++ // the unfinished last line
	}
	cut := from > i.entry.LogFrom
	if cut { // the first line may begin in the middle of a secret, which masking would not find
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	if masked, ok := i.maskedTail(string(text)); ok { // mask before splitting: a secret may span lines
		lines, more := crash.Lines([]byte(masked), n)
		return lines, min(lately, len(lines)), cut || more
	}
	i.log.Warn("the last output is not kept: the values of the instance's secrets are unknown and may be in it")
	return nil, 0, len(text) > 0
}

// size is the size of an instance's output in bytes.
func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// addRefusal adds the shell's error to the end of a run whose command could not be run.
func (i *Instance) addRefusal(e machine.Event) machine.Event {
	end, ok := e.(machine.Exited)
	if !ok || !end.Exit.Known || end.Exit.Code != crash.CodeMissing && end.Exit.Code != crash.CodeNotExecutable {
		return e
	}
	const enough = 20 // lines: the shell's error comes last
	tail, _, _ := i.tail(enough, time.Time{})
	if reason, message, ok := crash.Refused(end.Exit.Code, tail); ok {
		end.Refused = &machine.Refusal{Reason: reason, Message: message}
	}
	return end
}
