package command

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
)

// Each calls act for each name. With several names it prints a failure and continues with the next. Its
// error has the exit code of the failures if they have the same, otherwise 1.
func Each(ctx context.Context, a *app.App, names []string, act func(name string) error) error {
	if len(names) == 1 {
		return act(names[0])
	}
	var failures Failures
	for i, name := range names {
		err := act(name)
		if err != nil && ctx.Err() != nil {
			return exit.Hint(err, fmt.Sprintf("done: %d of %d; not done: %s and the names after it", i, len(names), name))
		}
		failures.Add(a, name, err)
	}
	return failures.Err()
}
