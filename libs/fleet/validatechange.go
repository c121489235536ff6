package fleet

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
)

// ValidateChange lists what is wrong with a spec that is to take the place of another, as
// Validate does, but not what was wrong with that one and is left as it was: a bound that
// an older version did not have must not block changes of other things. What is changed is
// held to every bound.
func (s GroupSpec) ValidateChange(before GroupSpec) []error {
	problems := s.Validate()
	if len(problems) == 0 {
		return nil
	}
	was, is := told(before.faults()), told(s.changedFrom(before).faults())
	problems = slices.DeleteFunc(s.faults(), func(err error) bool {
		return was[tellingOf(err)] && !is[tellingOf(err)]
	})
	if len(problems) > 0 {
		return problems
	}
	if size, err := s.size(); err != nil || size > maxSpecBytes {
		if had, err := before.size(); err != nil || size > had {
			return s.oversize()
		}
	}
	return nil
}

// telling is what a problem says of which field.
type telling struct{ field, message string }

func tellingOf(err error) telling { return telling{errs.FieldOf(err), errs.MessageOf(err)} }

func told(problems []error) map[telling]bool {
	out := map[telling]bool{}
	for _, err := range problems {
		out[tellingOf(err)] = true
	}
	return out
}

// changedFrom is the default spec with what s has otherwise than before. Lists and maps
// are changed as a whole.
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

// sameStored reports whether two values of one type are stored as the same.
func sameStored(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}
