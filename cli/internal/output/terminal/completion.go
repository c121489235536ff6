package terminal

import (
	"slices"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// Words are the commands that a server listed when help was typed: one a line. It may be used concurrently.
type Words struct {
	mu  sync.Mutex
	all map[string]bool
	// listing is true after help was typed, until the next line is typed.
	listing bool
}

// maxWords bounds Words.
const maxWords = 5000

// helpLine is a line of the help of a server: /give <player>, possibly after a time and a level in brackets.
var helpLine = lazyregexp.New(`^(?:(?:\[[^\]]*\] ?)+: )?/?([a-z][a-z0-9_-]*(?::[a-z0-9_-]+)?)(?:[ :,]|$)`)

// Typed takes a line that was typed.
func (w *Words) Typed(line string) {
	word, _, _ := strings.Cut(strings.TrimPrefix(line, "/"), " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listing = word == "help" || word == "?"
}

// Learn looks for a command in a line of output.
func (w *Words) Learn(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.listing {
		return
	}
	m := helpLine().FindStringSubmatch(line)
	if m == nil {
		return
	}
	if w.all == nil {
		w.all = map[string]bool{}
	}
	if len(w.all) < maxWords {
		w.all[m[1]] = true
	}
}

// Complete returns the line that begins with typed and continues as far as all candidates agree: lines of the
// history and commands that were learnt. If they do not agree any further, it returns the words that may follow.
func (w *Words) Complete(typed string, history *History) (line string, choices []string) {
	matches := w.matches(typed, history)
	if len(matches) == 0 {
		return typed, nil
	}
	line = matches[0]
	for _, m := range matches[1:] {
		n := 0
		for n < len(line) && n < len(m) && line[n] == m[n] {
			n++
		}
		line = line[:n]
	}
	if line = strings.ToValidUTF8(line, ""); len(line) > len(typed) || len(matches) == 1 {
		return line, nil
	}
	start := strings.LastIndexByte(typed, ' ') + 1
	for _, m := range matches {
		word, _, _ := strings.Cut(m[start:], " ")
		choices = append(choices, word)
	}
	slices.Sort(choices)
	return typed, slices.Compact(choices)
}

// matches returns the candidates that begin with typed.
func (w *Words) matches(typed string, history *History) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for word := range w.all {
		if strings.HasPrefix(word, typed) {
			all = append(all, word)
		}
	}
	for _, line := range history.lines {
		if strings.HasPrefix(line, typed) {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
