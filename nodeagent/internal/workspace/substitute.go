package workspace

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// maxText is the largest file placeholders are replaced in.
	maxText = 16 << 20
	// maxNotes bounds what is told of one directory.
	maxNotes = 8
)

// substitution replaces placeholders and remembers what it did not know. It is
// used by several copiers at once.
type substitution struct {
	values map[string]string

	mu sync.Mutex
	// unknown is the first file each unknown placeholder was found in.
	unknown map[string]string
	// alone are listed files that were left alone, with the cause.
	alone map[string]string
}

func newSubstitution(values map[string]string) *substitution {
	return &substitution{values: values, unknown: map[string]string{}, alone: map[string]string{}}
}

// replaced is a file's text with placeholders replaced. changed is false when it
// is to stay as it is.
func (s *substitution) replaced(name string, src io.Reader, size int64) (text string, changed bool, err error) {
	if size > maxText {
		s.leaveAlone(name, "too large")
		return "", false, nil
	}
	content, err := io.ReadAll(src)
	if err != nil {
		return "", false, err
	}
	if bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content) {
		s.leaveAlone(name, "not text")
		return "", false, nil
	}
	out, unknown := Substitute(string(content), s.values)
	s.note(name, unknown)
	return out, out != string(content), nil
}

func (s *substitution) leaveAlone(name, cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alone[name] = cause
}

func (s *substitution) note(name string, unknown []string) {
	if len(unknown) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range unknown {
		if first, ok := s.unknown[u]; !ok || name < first {
			s.unknown[u] = name
		}
	}
}

// notes tells what was found, in a fixed order.
func (s *substitution) notes() []string {
	var notes []string
	for name, cause := range s.alone {
		notes = append(notes, fmt.Sprintf("%s was left alone: %s", name, cause))
	}
	for placeholder, where := range s.unknown {
		notes = append(notes, UnknownNote(placeholder, where))
	}
	slices.Sort(notes)
	if len(notes) > maxNotes {
		more := len(notes) - maxNotes
		notes = append(notes[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return notes
}

// UnknownNote words that a placeholder has no value.
func UnknownNote(placeholder, where string) string {
	return fmt.Sprintf("unknown placeholder %%%s%% in %s", placeholder, where)
}

// Substitute replaces placeholders in a text by values; see fleet.Substitute.
func Substitute(text string, values map[string]string) (string, []string) {
	if !strings.Contains(text, "%") {
		return text, nil
	}
	return fleet.Substitute(text, func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	})
}
