package groupops

import (
	"github.com/orreryhq/orrery/libs/errs"
)

// asWritten replaces the fields of problems by the paths in the caller's request, and removes
// duplicates, such as those of each port of a range.
func asWritten(written func(string) string, problems []error) []error {
	if written == nil {
		return problems
	}
	var out []error
	said := map[string]bool{}
	for _, p := range problems {
		field := written(errs.FieldOf(p))
		if text := field + errs.MessageOf(p); !said[text] {
			said[text] = true
			out = append(out, &errs.Error{Kind: errs.KindOf(p), Field: field, Message: errs.MessageOf(p), Err: p})
		}
	}
	return out
}
