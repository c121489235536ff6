package command

import (
	"strconv"
	"time"
)

// ParseTime returns the time in the value of a flag: RFC 3339, a date, or an age such as 90m or 7d.
func ParseTime(flag, text string, now time.Time) (time.Time, error) {
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
		return now.AddDate(0, 0, -days), nil
	}
	return time.Time{}, UsageError("for example 1h, 7d, 2026-01-31 or 2026-01-31T15:04:05Z", "%s %q is not a time", flag, text)
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
