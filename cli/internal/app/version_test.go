package app

import "testing"

func TestVersionsDiffer(t *testing.T) {
	for _, c := range []struct {
		client, server string
		want           bool
	}{
		{"1.2.0", "1.2.0", false},
		{"v1.2.0", "1.2.0", false},
		{"1.2.0", "1.3.0", true},
		{"(devel)", "1.3.0", false},
		{"1.2.0", "devel", false},
	} {
		if got := VersionsDiffer(c.client, c.server); got != c.want {
			t.Errorf("%s and %s: %v", c.client, c.server, got)
		}
	}
}
