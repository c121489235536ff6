package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// optional is a flag whose target stays nil while the flag is not given.
type optional[T any] struct {
	target **T
	parse  func(string) (T, error)
	kind   string
}

// Set parses the value of the flag.
func (o optional[T]) Set(text string) error {
	v, err := o.parse(text)
	if err == nil {
		*o.target = &v
	}
	return err
}

// String returns the value; empty without one.
func (o optional[T]) String() string {
	if o.target == nil || *o.target == nil {
		return ""
	}
	return fmt.Sprint(**o.target)
}

// Type names the values in the help.
func (o optional[T]) Type() string { return o.kind }

// OptionalNumber declares a flag with a whole number that is not negative.
func OptionalNumber(flags *pflag.FlagSet, target **int64, name, usage string) {
	flags.Var(optional[int64]{target, parseNumber, "number"}, name, usage)
}

// OptionalBool declares a flag that may also be given as --name=false.
func OptionalBool(flags *pflag.FlagSet, target **bool, name, usage string) {
	flags.Var(optional[bool]{target, strconv.ParseBool, "bool"}, name, usage)
	flags.Lookup(name).NoOptDefVal = "true"
}

// OptionalSeconds declares a flag with a duration in whole seconds.
func OptionalSeconds(flags *pflag.FlagSet, target **int64, name, usage string) {
	flags.Var(optional[int64]{target, parseSeconds, "duration"}, name, usage)
}

// OptionalText declares a flag whose text parse checks; nil accepts every text.
func OptionalText(flags *pflag.FlagSet, target **string, name, usage string, parse func(string) (string, error)) {
	if parse == nil {
		parse = func(text string) (string, error) { return text, nil }
	}
	flags.Var(optional[string]{target, parse, "text"}, name, usage)
}

// OptionalFloat declares a flag with a number that is not negative.
func OptionalFloat(flags *pflag.FlagSet, target **float64, name, usage string) {
	flags.Var(optional[float64]{target, parseFloat, "number"}, name, usage)
}

// atLeast is a flag with a whole number that has a lower bound.
type atLeast[T int | int64] struct {
	target *T
	least  T
}

// Set parses the value of the flag.
func (f atLeast[T]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, strconv.IntSize)
	if err != nil || T(n) < f.least {
		return fmt.Errorf("it must be a whole number, at least %d", f.least)
	}
	*f.target = T(n)
	return nil
}

// String returns the value.
func (f atLeast[T]) String() string {
	if f.target == nil {
		return ""
	}
	return fmt.Sprint(*f.target)
}

// Type names the values in the help.
func (f atLeast[T]) Type() string { return "number" }

// Number declares a flag with a whole number that is at least least. The default is what target has.
func Number[T int | int64](flags *pflag.FlagSet, target *T, name string, least T, usage string) {
	NumberP(flags, target, name, "", least, usage)
}

// NumberP is Number with a letter that stands for the name.
func NumberP[T int | int64](flags *pflag.FlagSet, target *T, name, letter string, least T, usage string) {
	flags.VarP(atLeast[T]{target, least}, name, letter, usage)
}

// duration is a flag with a duration that is not negative.
type duration struct{ target *time.Duration }

// Set parses the value of the flag.
func (f duration) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("it must be a duration that is not negative, such as 90s, 10m or 2h")
	}
	*f.target = d
	return nil
}

// String returns the value.
func (f duration) String() string {
	if f.target == nil || *f.target == 0 {
		return "0"
	}
	return f.target.String()
}

// Type names the values in the help.
func (f duration) Type() string { return "duration" }

// Duration declares a flag with a duration that is not negative. The default is what target has.
func Duration(flags *pflag.FlagSet, target *time.Duration, name, usage string) {
	flags.Var(duration{target}, name, usage)
}

// ParseDuration checks a duration that the server parses, for OptionalText. It may be in days.
func ParseDuration(text string) (string, error) {
	days, inDays := cutDays(text)
	if d, err := time.ParseDuration(text); inDays && days > 0 || err == nil && d > 0 {
		return text, nil
	}
	return "", errors.New("it must be a duration longer than 0, such as 10m, 2h or 7d")
}

func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a whole number of at least 0", text)
	}
	return n, nil
}

func parseFloat(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q is not a number of at least 0", text)
	}
	return n, nil
}

func parseSeconds(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d%time.Second != 0 {
		return 0, fmt.Errorf("%q is not a duration in whole seconds such as 90s, 10m or 2h", text)
	}
	return int64(d / time.Second), nil
}

// NoCompletions declares that the values of all other flags so far are not files.
func NoCompletions(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // it fails only for one that has a function
		}
	})
}
