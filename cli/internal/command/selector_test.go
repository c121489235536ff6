package command_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/command"
)

func TestASelectorMatchesLabels(t *testing.T) {
	labels := map[string]any{"zone": "a", "ssd": "", "team": "duels"}
	for text, want := range map[string]bool{
		"": true, "zone=a": true, "zone==a": true, "zone=b": false, "zone!=b": true, "zone!=a": false, "gpu!=x": true, "ssd=": true,
		"ssd": true, "!ssd": false, "gpu": false, "!gpu": true, "zone=a,!gpu": true, "zone=a, gpu": false,
		"zone in (a, b)": true, "zone in (b,c)": false, "zone notin (b)": true, "zone notin (a)": false, "gpu notin (x)": true,
		"zone in (a,b),team=duels": true, " team = duels ": true,
	} {
		s, err := command.ParseSelector(text)
		if err != nil || s.Matches(labels) != want {
			t.Errorf("%q: %v, %v, want %v", text, s.Matches(labels), err, want)
		}
	}
	for _, text := range []string{",", "zone=a,", "=a", "!zone=a", "zone in a", "zone in (a", "zone<a", "a b", "!"} {
		if _, err := command.ParseSelector(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
