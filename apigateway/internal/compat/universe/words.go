package universe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// word maps a native field name to this dialect's name.
type word struct{ native, here string }

var words = []word{
	{"portRangeStart", "availablePorts.min"},
	{"portRangeEnd", "availablePorts.max"},
	{"minInstances", "minimumServiceCount"},
	{"variableValues", "properties"},
	{"memoryMb", "ramMB"},
	{"env", "environmentVariables"},
	{"templates", "templateInstallationConfig"},
}

// spelling replaces native names that are unambiguous in messages.
var spelling = strings.NewReplacer(
	"portRangeStart", "availablePorts.min", "portRangeEnd", "availablePorts.max",
	"minInstances", "minimumServiceCount", "memoryMb", "ramMB",
)

// inOurWords renames the field in an error to this dialect's name.
func inOurWords(err error) error {
	field := errs.FieldOf(err)
	if field == "" {
		return err
	}
	return &errs.Error{
		Kind: errs.KindOf(err), Field: fieldName(field), Message: spelling.Replace(errs.MessageOf(err)), Err: err,
	}
}

// written returns the path under which a client sent a native field. A fixed port is also the end of its
// range.
func (b configurationBody) written(native string) string {
	for i, p := range b.AdditionalPorts {
		if end := fmt.Sprintf("additionalPorts[%d].end", i); native == end && p.End == 0 {
			return strings.TrimSuffix(end, "end") + "port"
		}
	}
	return fieldName(native)
}

// fieldName renames the path of a native field.
func fieldName(native string) string {
	if strings.HasPrefix(native, "additionalPorts[") {
		return strings.NewReplacer(".start", ".port").Replace(native)
	}
	i := slices.IndexFunc(words, func(w word) bool {
		rest, ok := strings.CutPrefix(native, w.native)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
	if i < 0 {
		return native
	}
	return words[i].here + strings.TrimPrefix(native, words[i].native)
}
