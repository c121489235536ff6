package fleet

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// ValidateChange is Validate for a spec that replaces before. It ignores problems that before
// already had in unchanged fields, so that a limit added in a newer version does not block
// unrelated changes. Changed fields must satisfy every limit.
func (s GroupSpec) ValidateChange(before GroupSpec) []error {
	problems := s.Validate()
	if len(problems) == 0 {
		return nil
	}
	was, is := keysOf(before.faults()), keysOf(s.changedFrom(before).faults())
	problems = slices.DeleteFunc(s.faults(), func(err error) bool {
		return was[keyOf(err)] && !is[keyOf(err)]
	})
	if len(problems) > 0 {
		return problems
	}
	if size, err := s.size(); err != nil || size > validate.MaxSpecBytes {
		if had, err := before.size(); err != nil || size > had {
			return s.oversize()
		}
	}
	return nil
}

// problemKey identifies a problem by its field and message.
type problemKey struct{ field, message string }

func keyOf(err error) problemKey { return problemKey{errs.FieldOf(err), errs.MessageOf(err)} }

func keysOf(problems []error) map[problemKey]bool {
	out := map[problemKey]bool{}
	for _, err := range problems {
		out[keyOf(err)] = true
	}
	return out
}

// changedFrom returns the default spec with the fields that differ between before and s set to
// those of s. Lists and maps change as a whole.
func (s GroupSpec) changedFrom(before GroupSpec) GroupSpec {
	out := DefaultSpec()
	takeChanged(reflect.ValueOf(&out).Elem(), reflect.ValueOf(s), reflect.ValueOf(before))
	return out
}

func takeChanged(to, now, before reflect.Value) {
	for n := range to.NumField() {
		switch {
		case to.Field(n).Kind() == reflect.Struct:
			takeChanged(to.Field(n), now.Field(n), before.Field(n))
		case !sameStored(now.Field(n).Interface(), before.Field(n).Interface()):
			to.Field(n).Set(now.Field(n))
		}
	}
}

// sameStored reports whether two values have the same JSON.
func sameStored(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}
