// Package crash classifies the end of a run: its category, the line that explains it best,
// and a fingerprint that is equal for equal causes.
//
//	the last lines ──┐
//	exit, reason ────┴─▶ category · cause · fingerprint
//
// It is pure: the same end gives the same result on every node. The fingerprint ignores what
// changes from run to run, such as times, numbers, addresses and the instance's own names.
package crash

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// MaxTail is the number of last lines that are examined and kept with a crash.
const MaxTail = 500

// End describes a run that ended.
type End struct {
	Reason fleet.Reason
	// Exit is nil if no process was started.
	Exit *fleet.Exit
	// Tail holds the last lines of the console, oldest first. Read uses the last MaxTail.
	Tail []string
	// Late counts the lines of Tail that were printed within a second of the end. If their
	// times are unknown, it counts all lines.
	Late int
	// Own holds texts that are specific to this run: its id, name and directory.
	Own []string
}

// Reading is the classification of a run's end.
type Reading struct {
	Category reports.CrashCategory
	// Cause is empty if no line looks like a cause.
	Cause       string
	Fingerprint string
}

// Read classifies the end of a run.
func Read(e End) Reading {
	lines := make([]string, 0, min(len(e.Tail), MaxTail))
	for _, l := range e.Tail[max(0, len(e.Tail)-MaxTail):] {
		lines = append(lines, printable(l))
	}
	r, frame := Reading{Category: category(e, lines)}, ""
	switch at := findCause(lines, max(0, len(lines)-e.Late)); {
	case e.Reason == fleet.ReasonDiskLimit: // the agent stopped it, whatever it printed
		r.Cause = e.Reason.Text()
	case e.Reason == fleet.ReasonKilledBySignal && r.Category == reports.CrashKilled:
		r.Cause = reports.CauseKilled
	case at >= 0:
		r.Cause = clip(message(lines[at]))
		frame = firstFrame(lines, at)
	}
	r.Fingerprint = fingerprint(e, r.Category, r.Cause, frame)
	return r
}

// inText are the categories that a server's output reveals, in order of precedence.
var inText = []struct {
	category reports.CrashCategory
	pattern  *regexp.Regexp
}{
	{reports.CrashOutOfMemory, regexp.MustCompile(`OutOfMemoryError|Out of memory|out of memory|std::bad_alloc|MemoryError\b|JavaScript heap out of memory|Native memory allocation \(`)},
	{reports.CrashStackOverflow, regexp.MustCompile(`StackOverflowError|stack overflow|goroutine stack exceeds|Maximum call stack size exceeded|RecursionError`)},
	{reports.CrashClassNotFound, regexp.MustCompile(`ClassNotFoundException|NoClassDefFoundError|UnsupportedClassVersionError|Could not find or load main class|Unable to access jarfile|ModuleNotFoundError|Cannot find module|error while loading shared libraries`)},
	{reports.CrashPortBind, regexp.MustCompile(`(?i)address already in use|failed to bind to port|BindException|EADDRINUSE`)},
}

var byCode = map[int]reports.CrashCategory{
	0: reports.CrashClean, 1: reports.CrashGeneral, 130: reports.CrashInterrupted, 134: reports.CrashAborted,
	137: reports.CrashKilled, 139: reports.CrashSegfault, 143: reports.CrashTerminated,
}

func category(e End, lines []string) reports.CrashCategory {
	switch {
	case e.Reason == fleet.ReasonStartTimeout:
		return reports.CrashStartTimeout
	case e.Reason == fleet.ReasonUnhealthy:
		return reports.CrashUnhealthy
	case e.Reason == fleet.ReasonOutOfMemory, e.Exit != nil && e.Exit.OOM:
		return reports.CrashOutOfMemory
	}
	for _, c := range inText {
		for _, l := range lines {
			if c.pattern.MatchString(l) {
				return c.category
			}
		}
	}
	if e.Exit == nil || !e.Exit.Known {
		return reports.CrashUnknown
	}
	if c, ok := byCode[e.Exit.Code]; ok {
		return c
	}
	return reports.CrashUnknown
}

var (
	uuid    = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	address = regexp.MustCompile(`@[0-9a-fA-F]{5,16}\b|\b0x[0-9a-fA-F]+`)
	digits  = regexp.MustCompile(`[0-9]+`)
)

func fingerprint(e End, c reports.CrashCategory, cause, frame string) string {
	h := sha256.New()
	how := string(e.Reason)
	if e.Exit != nil {
		how += fmt.Sprintf(" %d %s %v", e.Exit.Code, e.Exit.Signal, e.Exit.Known)
	}
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s", c, how, normalize(cause, e.Own), normalize(frame, e.Own))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// normalize replaces what changes from run to run.
func normalize(s string, own []string) string {
	for _, o := range own {
		if o != "" {
			s = strings.ReplaceAll(s, o, "#")
		}
	}
	s = uuid.ReplaceAllString(s, "#")
	s = address.ReplaceAllString(s, "#")
	return digits.ReplaceAllString(s, "#")
}

// Lines returns the last n lines of a text, oldest first, including an unfinished last line.
// cut reports whether there were more lines before them.
func Lines(text []byte, n int) (lines []string, cut bool) {
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(text) == 0 {
		return nil, false
	}
	for _, l := range all[max(0, len(all)-n):] {
		lines = append(lines, strings.TrimSuffix(l, "\r"))
	}
	return lines, len(all) > n
}
