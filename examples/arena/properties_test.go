package arena

import (
	"maps"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       map[string]string
	}{
		{"an empty file has no keys", "", nil},
		{"comments and empty lines are skipped", "# a\n! b\n\n  # c\n", nil},
		{"all three separators", "a=1\nb: 2\nc 3\n", map[string]string{"a": "1", "b": "2", "c": "3"}},
		{"space around the separator is dropped, at the end it stays", " a \t=  1 \n", map[string]string{"a": "1 "}},
		{"a value may hold separators", "a=b=c:d\n", map[string]string{"a": "b=c:d"}},
		{"a key alone has an empty value", "a\nb=\n", map[string]string{"a": "", "b": ""}},
		{"unknown keys are kept", "future-key=x\n", map[string]string{"future-key": "x"}},
		{"the last of a key wins", "a=1\na=2\n", map[string]string{"a": "2"}},
		{"lines may end with a carriage return, or not at all", "a=1\r\nb=2", map[string]string{"a": "1", "b": "2"}},
		{"a backslash joins lines", "a=one,\\\n   two\n", map[string]string{"a": "one,two"}},
		{"two backslashes are one and join nothing", "a=x\\\\\nb=2\n", map[string]string{"a": `x\`, "b": "2"}},
		{"a joined line may begin like a comment", "a=\\\n#1\n", map[string]string{"a": "#1"}},
		{"the file may end in a backslash", `a=1\`, map[string]string{"a": "1"}},
		{"escapes", `motd=\u00a7aHi\tall\!` + "\n", map[string]string{"motd": "§aHi\tall!"}},
		{"an escaped separator belongs to the key", `a\=b=1` + "\n", map[string]string{"a=b": "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseProperties(tc.text)
			if err != nil || !maps.Equal(got, tc.want) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	with := func(change func(*settings)) settings {
		s := defaultSettings()
		change(&s)
		return s
	}
	for _, tc := range []struct {
		name, text string
		want       settings
		wantErr    string
	}{
		{name: "nothing said is the default", want: defaultSettings()},
		{name: "an empty value is the default", text: "server-port=\nmotd=\n", want: defaultSettings()},
		{
			name: "each key has its place",
			text: "server-port=1\nserver-ip=127.0.0.1\nmotd=m\nmax-players=0\nlevel-name=l\nother=x",
			want: with(func(s *settings) { *s = settings{ip: "127.0.0.1", port: 1, motd: "m", level: "l"} }),
		},
		{name: "a placeholder nobody replaced is named", text: "server-port=%PORT%", wantErr: `server-port must be a number from 0 to 65535, not "%PORT%"`},
		{name: "a port has an end", text: "server-port=65536", wantErr: "server-port"},
		{name: "players are not negative", text: "max-players=-1", wantErr: "max-players"},
		{name: "a level does not leave its directory", text: "level-name=../x", wantErr: "level-name"},
		{name: "a broken escape names its line", text: "a=1\nmotd=\\u12", wantErr: "line 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseSettings(tc.text)
			switch {
			case tc.wantErr == "" && (err != nil || got != tc.want):
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("got %v, want an error with %q", err, tc.wantErr)
			}
		})
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add("server-port=25565\nmotd=\\u00a7a\\\n  b\n# c\nlevel-name=w")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSettings(text)
		if err != nil {
			return
		}
		if s.port < 0 || s.port > maxPort || s.maxPlayers < 0 || s.level == "" || strings.ContainsAny(s.level, "/\x00") {
			t.Fatalf("accepted %+v", s)
		}
	})
}
