// Package crash reads the end of a run: what kind of failure it was, which line says it
// best, and a fingerprint that equal causes share.
//
//	the last lines ──┐
//	exit, reason ────┴─▶ category · cause · fingerprint
//
// It is pure: the same end gives the same reading on every node. What changes from run
// to run (times, numbers, addresses, the instance's own names) does not reach the
// fingerprint.
package crash

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// MaxTail is how many of the last lines are looked at, and kept with a crash.
const MaxTail = 500

// End is what is known of a run that ended.
type End struct {
	Reason fleet.Reason
	// Exit is nil when no process had started.
	Exit *fleet.Exit
	// Tail are the last lines of the console, oldest first; of more than MaxTail the last.
	Tail []string
	// Late counts the last lines of Tail that were printed within a second of the end; of a
	// run whose times are not known all.
	Late int
	// Own are texts that belong to this run alone: its id, name and directory.
	Own []string
}

// Reading is what a run's end means.
type Reading struct {
	Category fleet.CrashCategory
	// Cause is empty when the run said nothing that can be told apart from its usual talk.
	Cause       string
	Fingerprint string
}

// Read reads the end of a run.
func Read(e End) Reading {
	lines := make([]string, 0, min(len(e.Tail), MaxTail))
	for _, l := range e.Tail[max(0, len(e.Tail)-MaxTail):] {
		lines = append(lines, plain(l))
	}
	r, frame := Reading{Category: category(e, lines)}, ""
	switch at := findCause(lines, max(0, len(lines)-e.Late)); {
	case e.Reason == fleet.ReasonDiskLimit: // the agent ended it, whatever it printed
		r.Cause = e.Reason.Text()
	case e.Reason == fleet.ReasonKilledBySignal && r.Category == fleet.CrashKilled:
		r.Cause = fleet.CauseKilled
	case at >= 0:
		r.Cause = clip(message(lines[at]))
		frame = firstFrame(lines, at)
	}
	r.Fingerprint = fingerprint(e, r.Category, r.Cause, frame)
	return r
}

// inText are the categories that a server's own words tell, in order of precedence.
var inText = []struct {
	category fleet.CrashCategory
	pattern  *regexp.Regexp
}{
	{fleet.CrashOutOfMemory, regexp.MustCompile(`OutOfMemoryError|Out of memory|out of memory|std::bad_alloc|MemoryError\b|JavaScript heap out of memory|Native memory allocation \(`)},
	{fleet.CrashStackOverflow, regexp.MustCompile(`StackOverflowError|stack overflow|goroutine stack exceeds|Maximum call stack size exceeded|RecursionError`)},
	{fleet.CrashClassNotFound, regexp.MustCompile(`ClassNotFoundException|NoClassDefFoundError|UnsupportedClassVersionError|Could not find or load main class|Unable to access jarfile|ModuleNotFoundError|Cannot find module|error while loading shared libraries`)},
	{fleet.CrashPortBind, regexp.MustCompile(`(?i)address already in use|failed to bind to port|BindException|EADDRINUSE`)},
}

var byCode = map[int]fleet.CrashCategory{
	0: fleet.CrashClean, 1: fleet.CrashGeneral, 130: fleet.CrashInterrupted, 134: fleet.CrashAborted,
	137: fleet.CrashKilled, 139: fleet.CrashSegfault, 143: fleet.CrashTerminated,
}

func category(e End, lines []string) fleet.CrashCategory {
	switch {
	case e.Reason == fleet.ReasonStartTimeout:
		return fleet.CrashStartTimeout
	case e.Reason == fleet.ReasonUnhealthy:
		return fleet.CrashUnhealthy
	case e.Reason == fleet.ReasonOutOfMemory, e.Exit != nil && e.Exit.OOM:
		return fleet.CrashOutOfMemory
	}
	for _, c := range inText {
		for _, l := range lines {
			if c.pattern.MatchString(l) {
				return c.category
			}
		}
	}
	if e.Exit == nil || !e.Exit.Known {
		return fleet.CrashUnknown
	}
	if c, ok := byCode[e.Exit.Code]; ok {
		return c
	}
	return fleet.CrashUnknown
}

var (
	uuid    = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	address = regexp.MustCompile(`@[0-9a-fA-F]{5,16}\b|\b0x[0-9a-fA-F]+`)
	digits  = regexp.MustCompile(`[0-9]+`)
)

func fingerprint(e End, c fleet.CrashCategory, cause, frame string) string {
	h := sha256.New()
	how := string(e.Reason)
	if e.Exit != nil {
		how += fmt.Sprintf(" %d %s %v", e.Exit.Code, e.Exit.Signal, e.Exit.Known)
	}
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s", c, how, normal(cause, e.Own), normal(frame, e.Own))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// normal replaces what changes from run to run.
func normal(s string, own []string) string {
	for _, o := range own {
		if o != "" {
			s = strings.ReplaceAll(s, o, "#")
		}
	}
	s = uuid.ReplaceAllString(s, "#")
	s = address.ReplaceAllString(s, "#")
	return digits.ReplaceAllString(s, "#")
}

// Lines are the last n lines of a text, oldest first; an unfinished one counts. cut says
// that there were others before them.
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
