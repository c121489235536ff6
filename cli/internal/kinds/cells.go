package kinds

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// unlimited shows 0 as no limit.
func unlimited(f gjson.Result) string {
	if f.Int() == 0 {
		return "∞"
	}
	return f.String()
}

// wholeFleet shows an empty selector as all.
func wholeFleet(f gjson.Result) string {
	if f.String() == "" {
		return "all"
	}
	return f.String()
}

// positive shows nothing for 0.
func positive(f gjson.Result) string {
	if f.Int() == 0 {
		return ""
	}
	return f.String()
}

func mebibytes(f gjson.Result) string {
	if !f.Exists() || f.Type == gjson.Null {
		return ""
	}
	return Size(f.Int() << 20)
}

// SizeCell shows a number of bytes with a unit.
func SizeCell(f gjson.Result) string { return Size(f.Int()) }

// Size returns a number of bytes with a unit.
func Size(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n), -1
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if value >= 100 || value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %ciB", value, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// fraction shows 0.25 as 25%.
func fraction(f gjson.Result) string {
	if f.Type != gjson.Number {
		return ""
	}
	return fmt.Sprintf("%.0f%%", f.Num*100)
}

func milliseconds(f gjson.Result) string {
	if f.Int() == 0 {
		return ""
	}
	return Duration(time.Duration(f.Int()) * time.Millisecond)
}

// AgeCell shows how long ago a time was.
func AgeCell(f gjson.Result) string {
	at, err := time.Parse(time.RFC3339, f.String())
	if err != nil {
		return ""
	}
	return Duration(time.Since(at))
}

// Duration returns a duration with its two largest units at most.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// MomentCell shows a time in the local zone.
func MomentCell(f gjson.Result) string {
	at, err := time.Parse(time.RFC3339, f.String())
	if err != nil || at.IsZero() {
		return ""
	}
	return Moment(at)
}

// Moment returns a time in the local zone, exact to a second.
func Moment(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05") }

// shortLength is how much of a digest tells it from others.
const shortLength = 12

func short(f gjson.Result) string {
	s := strings.TrimPrefix(f.String(), "sha256:")
	return s[:min(len(s), shortLength)]
}

// VersionLength is how much of the digest of a version names it to the server.
const VersionLength = 16

// Version returns the beginning of the digest of a version, long enough to name it.
func Version(digest string) string { return digest[:min(len(digest), VersionLength)] }

// VersionCell shows the beginning of the digest of a version.
func VersionCell(f gjson.Result) string { return Version(f.String()) }
