package txn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// GetOptional reads a record. It returns the zero value if the record does not exist.
func GetOptional[T any](ctx context.Context, c *store.Client, k keys.Key[T]) (T, error) {
	v, err := store.Get(ctx, c, k)
	if errs.Is(err, errs.NotFound) {
		var none T
		return none, nil
	}
	return v, errs.Wrap("operate.Sources", err)
}

// GroupExists returns Invalid for a field that names a group that does not exist.
func GroupExists(s *view.Snapshot, field string, name fleet.GroupName) error {
	if g, ok := s.Groups.Get(name); !ok || g.Deleting {
		return errs.Field(field, "names a group that does not exist: %s", Clip(string(name)))
	}
	return nil
}

// maxProblems bounds how many problems or names one message lists.
const maxProblems = 10

// JoinProblems joins problems into one Invalid error that names the field of the first.
func JoinProblems(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	if len(problems) == 1 {
		return problems[0]
	}
	told := make([]string, 0, min(len(problems), maxProblems))
	for _, p := range problems[:min(len(problems), maxProblems)] {
		told = append(told, strings.TrimSpace(errs.FieldOf(p)+" "+errs.MessageOf(p)))
	}
	first := errs.FieldOf(problems[0])
	return &errs.Error{
		Kind: errs.Invalid, Field: first, Message: strings.Join(told, "; "), Err: errors.Join(problems...),
	}
}

// Clip shortens a text from a request to 64 bytes for a message.
func Clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// ListOf returns the plural or singular of what, followed by the first names.
func ListOf(what string, names []string) string {
	if len(names) > 1 {
		what += "s"
	}
	return fmt.Sprintf("%s %s", what, strings.Join(names[:min(len(names), maxProblems)], ", "))
}

// Count returns "1 what" or "n whats".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
