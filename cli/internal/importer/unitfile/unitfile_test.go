package unitfile

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	f := File{}
	err := f.Parse("a.service", "# comment\n[Service]\nEnvironment=A=1\nEnvironment=B=2\nExecStart=/bin/a \\\n# inside\n  b \\\n  c\n; comment\n\n[Install]\nWantedBy=x\n")
	if err == nil {
		err = f.Parse("drop-in", "[Service]\nExecStart=\nExecStart=/bin/other\nUser = me\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		section, key string
		want         []string
	}{
		{"Service", "Environment", []string{"A=1", "B=2"}},
		{"Service", "ExecStart", []string{"/bin/other"}},
		{"Service", "User", []string{"me"}},
		{"Install", "WantedBy", []string{"x"}},
	} {
		if got := f[c.section][c.key]; !slices.Equal(got, c.want) {
			t.Errorf("%s is %q, want %q", c.key, got, c.want)
		}
	}
	if err := (File{}).Parse("b.service", "[Service]\nA=1\nnonsense\n"); err == nil || err.Error() != "b.service:3:1: want [Section] or Key=value" {
		t.Errorf("got %v", err)
	}
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		`/bin/a b  c`:          {"/bin/a", "b", "c"},
		`a "b c" 'd e' f"g h"`: {"a", "b c", "d e", "fg h"},
		`a\ b "c\"d" '' e\n`:   {"a b", `c"d`, "", "e\n"},
		``:                     nil,
	} {
		if got := Words(line); !slices.Equal(got, want) {
			t.Errorf("%q has the words %q, want %q", line, got, want)
		}
	}
}

func TestMiB(t *testing.T) {
	for text, want := range map[string]int{"4G": 4096, "512M": 512, "1073741824": 1024, "2T": 2 << 20, "1048576K": 1024, "infinity": 0, "10%": 0, "": 0, "999999999999999T": 0} {
		if got, ok := MiB(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q is %d, %v, want %d", text, got, ok, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]int{"90": 90, "1min 30s": 90, "2h": 7200, "500ms": 0, "1.5min": 90, "5d": 86400} {
		if got, ok := Seconds(text); got != want || !ok {
			t.Errorf("%q is %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"infinity", "", "soon", "5 parsecs"} {
		if got, ok := Seconds(text); ok {
			t.Errorf("%q is %d", text, got)
		}
	}
}
