package autoscale

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

var figures = scaling.Metrics{Players: 45, Slots: 60, Free: 15, Instances: 3, Ready: 3, Min: 1, Max: 10, TPS: 19.5}

func ask(t *testing.T, p scalepolicy.Policy, m scaling.Metrics, wall string) scaling.Answer {
	t.Helper()
	at, err := time.Parse(time.RFC3339, wall)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	return r.Ask(m, at)
}

func TestExpressions(t *testing.T) {
	for expression, want := range map[string]int{
		"(players + 19) / 20":                                       3,
		"int(math.ceil(double(players) / 20.0)) + 1":                4,
		"players > 50 ? 8 : -1":                                     -1,
		"free < 20 ? instances + 1 : instances":                     4,
		"tps < 19.0 ? max : min":                                    1,
		"hour >= 18 && weekday == 5 ? 6 : 2":                        6,
		"math.greatest(2, players / 10)":                            4,
		"slots / (players - 45)":                                    -1,
		"ready + minute":                                            33,
		"players * 9223372036854775807":                             -1,
		"1000000000":                                                100_000,
		`int("a".matches("a*") ? 1 : 2) + (string(players).size())`: 3,
	} {
		a := ask(t, scalepolicy.Policy{Type: scalepolicy.CEL, Expression: expression, Timezone: "Europe/Berlin"}, figures, "2030-01-04T17:30:00Z") // a Friday
		if want < 0 {
			if a.Given || a.Message == "" {
				t.Errorf("%s: %+v, want no answer and a message", expression, a)
			}
			continue
		}
		if !a.Given || a.Instances != want {
			t.Errorf("%s: %+v, want %d", expression, a, want)
		}
	}
}

func TestAnExpressionIsAskedAgainWhenItsTimeChanges(t *testing.T) {
	for expression, want := range map[string]string{"1": "", "hour": "2030-01-04T18:00:00Z", "minute + hour": "2030-01-04T17:31:00Z", "weekday": "2030-01-04T18:00:00Z"} {
		a := ask(t, scalepolicy.Policy{Type: scalepolicy.CEL, Expression: expression}, figures, "2030-01-04T17:30:12Z")
		got := ""
		if !a.Until.IsZero() {
			got = a.Until.UTC().Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: until %q, want %q", expression, got, want)
		}
	}
}

func TestAScheduleAsksDuringItsWindows(t *testing.T) {
	evening := scalepolicy.Policy{Name: "evening", Type: scalepolicy.Schedule, Cron: "0 18 * * *", Timezone: "Europe/Berlin", DurationSeconds: 4 * 3600, Instances: 5}
	for wall, c := range map[string]struct {
		given bool
		until string
	}{
		"2030-01-04T16:59:59Z": {false, "2030-01-04T17:00:00Z"},
		"2030-01-04T17:00:00Z": {true, "2030-01-04T21:00:00Z"},
		"2030-01-04T20:59:59Z": {true, "2030-01-04T21:00:00Z"},
		"2030-01-04T21:00:00Z": {false, "2030-01-05T17:00:00Z"},
	} {
		a := ask(t, evening, figures, wall)
		if a.Given != c.given || a.Given && a.Instances != 5 || a.Until.UTC().Format(time.RFC3339) != c.until {
			t.Errorf("at %s: %+v, want given %v until %s", wall, a, c.given, c.until)
		}
		if a.Given && !strings.Contains(a.Message, "22:00 CET") {
			t.Errorf("at %s: %q", wall, a.Message)
		}
	}
}

func TestWhatIsNotAPolicyNamesItsField(t *testing.T) {
	cel := func(e string) scalepolicy.Policy { return scalepolicy.Policy{Type: scalepolicy.CEL, Expression: e} }
	hook := func(u string) scalepolicy.Policy { return scalepolicy.Policy{Type: scalepolicy.Webhook, URL: u} }
	for _, c := range []struct {
		policy         scalepolicy.Policy
		field, message string
	}{
		{cel("players + playrs"), "expression", "line 1, column 11"},
		{cel("players +\n  slot"), "expression", "line 2, column 3"},
		{cel("players / 2.0"), "expression", "line 1, column 9"},
		{cel("players +"), "expression", "line 1, column 10"},
		{cel("tps"), "expression", "must give an int"},
		{cel("players > 3"), "expression", "must give an int"},
		{cel("[1,2].all(x, x > 0) ? 1 : 2"), "expression", "line 1"},
		{cel(strings.Repeat("(", 400) + "1" + strings.Repeat(")", 400)), "expression", ""},
		{scalepolicy.Policy{Type: scalepolicy.CEL, Expression: "1", Timezone: "Mars/Olympus"}, "timezone", "is not a time zone"},
		{scalepolicy.Policy{Type: scalepolicy.Schedule, Cron: "61 * * * *"}, "cron", ""},
		{scalepolicy.Policy{Type: scalepolicy.Schedule, Cron: "0 4 * * *", Timezone: "Mars/Olympus"}, "timezone", ""},
		{hook("ftp://example.org/x"), "url", "http or https"},
		{hook("https://user:secret@example.org/x"), "url", "password"},
		{hook("http://127.0.0.1/x"), "url", "loopback"},
		{hook("http://169.254.169.254/latest"), "url", "metadata"},
		{hook("http://[::1]:80/"), "url", "loopback"},
		{hook("http://localhost:8080/"), "url", "loopback"},
		{hook("https://"), "url", ""},
		{hook("%"), "url", ""},
	} {
		err := Check(c.policy, egress.Allowed{})
		if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != c.field || !strings.Contains(errs.MessageOf(err), c.message) {
			t.Errorf("%+v: %v, want Invalid of %s with %q", c.policy, err, c.field, c.message)
		}
	}
	for _, ok := range []scalepolicy.Policy{cel("1"), hook("https://example.org/x"), hook("http://10.0.0.1/x")} {
		if err := Check(ok, egress.Parse([]string{"10.0.0.0/8"})); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
}
