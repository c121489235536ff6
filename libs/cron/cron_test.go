package cron

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
)

func parse(t interface {
	Helper()
	Fatal(...any)
}, expression, zone string,
) Schedule {
	t.Helper()
	s, err := Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestDueTimes(t *testing.T) {
	for name, c := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"each day at 4": {"0 4 * * *", "", "2030-01-01T04:00:00Z", []string{"2030-01-02T04:00:00Z", "2030-01-03T04:00:00Z"}},
		"in a zone":     {"0 4 * * *", "Europe/Berlin", "2030-01-01T00:00:00Z", []string{"2030-01-01T03:00:00Z"}},
		"either day field": {"0 0 13 * 5", "", "2030-09-01T00:00:00Z", []string{
			"2030-09-06T00:00:00Z", "2030-09-13T00:00:00Z", "2030-09-20T00:00:00Z",
		}},
		"a leap day": {"0 0 29 2 *", "", "2030-01-01T00:00:00Z", []string{"2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"}},
		// Clocks in New York went from 02:00 to 03:00 on 2030-03-10, and from 02:00 back to 01:00 on 2030-11-03.
		"a time in the gap is due after it": {"30 2 * * *", "America/New_York", "2030-03-09T08:00:00Z", []string{"2030-03-10T07:00:00Z", "2030-03-11T06:30:00Z"}},
		"two times in the gap are due once": {"0,30 2 10 3 *", "America/New_York", "2030-03-09T08:00:00Z", []string{"2030-03-10T07:00:00Z", "2031-03-10T06:00:00Z"}},
		"a time that occurs twice is due once": {"30 1 * * *", "America/New_York", "2030-11-03T00:00:00Z", []string{
			"2030-11-03T05:30:00Z", "2030-11-04T06:30:00Z",
		}},
		"every half hour in the doubled hour": {"*/30 * * * *", "America/New_York", "2030-11-03T05:00:00Z", []string{
			"2030-11-03T05:30:00Z", "2030-11-03T06:00:00Z", "2030-11-03T06:30:00Z", "2030-11-03T07:00:00Z",
		}},
		"every half hour across the gap": {"*/30 * * * *", "America/New_York", "2030-03-10T06:00:00Z", []string{
			"2030-03-10T06:30:00Z", "2030-03-10T07:00:00Z", "2030-03-10T07:30:00Z",
		}},
		// Clocks in Beirut go from 00:00 to 01:00: midnight does not exist.
		"no midnight": {"0 0 * * *", "Asia/Beirut", "2023-03-25T12:00:00Z", []string{"2023-03-25T22:00:00Z", "2023-03-26T21:00:00Z"}},
		// Samoa had no 30 December 2011.
		"a day that does not exist": {"0 4 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-30T14:00:00Z"}},
	} {
		s, at := parse(t, c.cron, c.zone), moment(t, c.after)
		for _, want := range c.want {
			next, ok := s.Next(at)
			if !ok || !next.Equal(moment(t, want)) {
				t.Errorf("%s: %v after %v, want %s", name, next, at, want)
			}
			at = next
		}
	}
}

func TestWhatIsNotACronExpressionNamesItsField(t *testing.T) {
	for _, c := range []struct{ cron, zone, field string }{
		{"", "", "cron"},
		{"0 4 * *", "", "cron"},
		{"0 0 4 * * *", "", "cron"},
		{"61 4 * * *", "", "cron"},
		{"@every 1s", "", "cron"},
		{"TZ= 4 * * *", "", "cron"},
		{"TZ=UTC 0 4 * *", "", "cron"},
		{"CRON_TZ=UTC 0 4 * *", "", "cron"},
		{"*/0 4 * * *", "", "cron"},
		{"0 0 30 2 *", "", "cron"},
		{"0 4 * * *", "Mars/Olympus", "timezone"},
		{"0 4 * * *", "Local", "timezone"},
		{"0 4 * * *", "../etc/passwd", "timezone"},
	} {
		if _, err := Parse(c.cron, c.zone); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != c.field {
			t.Errorf("%q in %q: %v, want Invalid of %s", c.cron, c.zone, err, c.field)
		}
	}
}

var (
	expressions = []string{"* * * * *", "*/7 * * * *", "0 */2 * * *", "30 2 * * *", "0 0 * * *", "15,45 0-3 * * 0", "0 4 1 * *", "59 23 31 12 *"}
	zones       = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll"}
)

func TestNextIsTheFirstDueTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, rapid.SampledFrom(expressions).Draw(t, "cron"), rapid.SampledFrom(zones).Draw(t, "zone"))
		after := time.Unix(rapid.Int64Range(1262304000, 1893456000).Draw(t, "after"), 0).UTC()
		next, ok := s.Next(after)
		if !ok || !next.After(after) {
			t.Fatalf("%v after %v", next, after)
		}
		between := after.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(after))-1).Draw(t, "between")))
		if again, _ := s.Next(between); !again.Equal(next) {
			t.Fatalf("%v after %v, but %v after %v", next, after, again, between)
		}
	})
}

func TestLatestIsTheLastDueTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, rapid.SampledFrom(expressions).Draw(t, "cron"), rapid.SampledFrom(zones).Draw(t, "zone"))
		since := time.Unix(rapid.Int64Range(1262304000, 1893456000).Draw(t, "since"), 0).UTC()
		until := since.Add(time.Duration(rapid.Int64Range(0, int64(400*24*time.Hour)).Draw(t, "long")))
		latest, ok := s.Latest(since, until)
		first, _ := s.Next(since)
		if ok != !first.After(until) {
			t.Fatalf("found %v, the first is %v", ok, first)
		}
		if next, _ := s.Next(latest); ok && (latest.After(until) || !next.After(until)) {
			t.Fatalf("%v, next %v, until %v", latest, next, until)
		}
	})
}
