// Package diagnosis has the commands that find out what is wrong, why, and what would happen.
package diagnosis

import (
	"fmt"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{problems(a), explain(a), simulate(a), history(a), audit(a)}
}

// day is a unit that time.ParseDuration does not know.
const day = 24 * time.Hour

// parseTime returns a time that is given as RFC 3339, as a date, or as an age such as 90m or 7d.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if at, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return at, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	if days, ok := cutDays(text); ok {
		return now.Add(-time.Duration(days) * day), nil
	}
	return time.Time{}, command.UsageError("for example 1h, 7d, 2026-01-31 or 2026-01-31T15:04:05Z", "%s %q is not a time", flag, text)
}

// maxDays bounds ages in days: a century.
const maxDays = 36_500

func cutDays(text string) (int, bool) {
	if len(text) < 2 || text[len(text)-1] != 'd' {
		return 0, false
	}
	days, err := strconv.Atoi(text[:len(text)-1])
	return days, err == nil && days >= 0 && days <= maxDays
}

// numberFlag declares -n.
func numberFlag(cmd *cobra.Command, target *int, fallback int, what string) {
	cmd.Flags().IntVarP(target, "number", "n", fallback, "`number` of "+what+" to show, the newest ones")
	command.CompleteFlag(cmd, "number", cobra.NoFileCompletions)
}

func checkNumber(n int) error {
	if n < 1 {
		return command.UsageError("for example -n 100", "-n %d: it must be at least 1", n)
	}
	return nil
}

// plural returns a number with a noun, for example 1 node or 3 nodes.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
