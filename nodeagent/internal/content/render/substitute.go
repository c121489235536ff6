package render

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Substitute replaces placeholders in a text by values, and returns those without a value.
func Substitute(text string, values map[string]string) (string, []string) {
	if !strings.Contains(text, "%") {
		return text, nil
	}
	return configfile.Substitute(text, func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	})
}

// maxName limits the length of a name in a note.
const maxName = 128

// UnknownNote is the note for a placeholder without a value.
func UnknownNote(placeholder, where string) string {
	return fmt.Sprintf("unknown placeholder %%%s%% in %s", validate.ClipMessage(placeholder, maxName), validate.ClipMessage(where, maxName))
}
