package render

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

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

// maxName bounds a name in a note.
const maxName = 128

// UnknownNote words that a placeholder has no value.
func UnknownNote(placeholder, where string) string {
	return fmt.Sprintf("unknown placeholder %%%s%% in %s", fleet.ClipMessage(placeholder, maxName), fleet.ClipMessage(where, maxName))
}
