package command_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/command"
)

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-01-31T15:04:05Z":      "2026-01-31T15:04:05Z",
		"2026-01-31T15:04:05+02:00": "2026-01-31T13:04:05Z",
		"90m":                       "2026-03-10T10:30:00Z",
		"7d":                        "2026-03-03T12:00:00Z",
		"-1h":                       "",
		"d":                         "",
		"-7d":                       "",
		"99999d":                    "",
		"yesterday":                 "",
		"":                          "",
	} {
		at, err := command.ParseTime("--since", text, now)
		got := ""
		if err == nil {
			got = at.UTC().Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
}
