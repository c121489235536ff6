package diagnosis

import (
	"testing"
	"time"
)

func TestTimesAreMomentsDatesOrAges(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"90m":                  now.Add(-90 * time.Minute),
		"7d":                   now.AddDate(0, 0, -7),
		"0s":                   now,
		"2026-01-31T15:04:05Z": time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC),
		"2026-01-31":           time.Date(2026, 1, 31, 0, 0, 0, 0, time.Local),
	} {
		if got, err := parseTime("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "-1h", "-3d", "99999999d", "tomorrow"} {
		if got, err := parseTime("--since", text, now); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestScoresNameTheLargestPartFirst(t *testing.T) {
	got := score(map[string]float64{"cpu": 0.1, "memory": 0.4, "ports": 0.1, "total": 0.6})
	if want := "0.600 = memory 0.400 + cpu 0.100 + ports 0.100"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
