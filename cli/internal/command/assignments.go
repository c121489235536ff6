package command

import "strings"

// Assignments splits arguments into changes by their keys, KEY=VALUE or KEY- with nil as the value, and the others.
// hint is that of an error about a key.
func Assignments(args []string, hint string) (changes map[string]*string, others []string, err error) {
	changes = map[string]*string{}
	for _, arg := range args {
		key, text, sets := strings.Cut(arg, "=")
		value := &text
		if !sets {
			removed, removes := strings.CutSuffix(arg, "-")
			if !removes {
				others = append(others, arg)
				continue
			}
			key, value = removed, nil
		}
		if _, twice := changes[key]; key == "" || twice {
			return nil, nil, UsageError(hint, "%q has no key, or its key is there twice", arg)
		}
		changes[key] = value
	}
	return changes, others, nil
}
