package app

import (
	"strings"
	"testing"
)

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

func TestVersionNoteSaysWhichIsOlder(t *testing.T) {
	for _, c := range []struct{ client, server, want string }{
		{"v1.2.0", "1.2.0", ""},
		{"v1.2.0", "devel", ""},
		{"v1.2.0", "v1.1.9", "the server is older"},
		{"v1.9.0", "1.10.0", "the server is newer"},
		{"v1.2", "v1.2.1", "the server is newer"},
		{"v1.2.0", "v1.2.0-rc.1", "the versions differ"},
		{"v1.2.0-3-g33f2cd4", "v2.0.0", "the server is newer"},
		{"33f2cd4", "v2.0.0", "the versions differ"},
	} {
		if got := VersionNote(c.client, c.server); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s and %s: %q", c.client, c.server, got)
		}
	}
}
