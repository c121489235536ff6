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
	code := exit.OK
	for i, name := range names {
		err := act(name)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return exit.Hint(err, fmt.Sprintf("done: %d of %d; not done: %s and the names after it", i, len(names), name))
		}
		a.Notef("%s: %v", name, err)
		if found := exit.CodeOf(err); code == exit.OK || code == found {
			code = found
		} else {
			code = exit.Failed
		}
	}
	if code == exit.OK {
		return nil
	}
	return exit.With(code, ErrSomeFailed, "")
}
