package universe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// word is a native field name for which this dialect has its own.
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

// spelling are the words that stand in messages for nothing but a field.
var spelling = strings.NewReplacer(
	"portRangeStart", "availablePorts.min", "portRangeEnd", "availablePorts.max",
	"minInstances", "minimumServiceCount", "memoryMb", "ramMB",
)

// inOurWords gives an error about a field the name that clients of this dialect know.
func inOurWords(err error) error {
	field := errs.FieldOf(err)
	if field == "" {
		return err
	}
	return &errs.Error{
		Kind: errs.KindOf(err), Field: fieldName(field), Message: spelling.Replace(errs.MessageOf(err)), Err: err,
	}
}

// written is the path under which a client wrote a native field: a fixed port is its
// range's end too.
func (b configurationBody) written(native string) string {
	for i, p := range b.AdditionalPorts {
		if end := fmt.Sprintf("additionalPorts[%d].end", i); native == end && p.End == 0 {
			return strings.TrimSuffix(end, "end") + "port"
		}
	}
	return fieldName(native)
}

// fieldName renames a native field's path.
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
