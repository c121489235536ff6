package secrets

import "testing"

func TestOrdinaryValues(t *testing.T) {
	for value, want := range map[string]bool{
		"true": true, "FALSE": true, "0": true, "25565": true, "-1.5": true, "1e3": true,
		"hard": false, "hunter2": false, "": false, "12345678": false, "localhost": false,
	} {
		if got := Ordinary(value); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}
