package secret

import (
	"slices"
	"strings"
	"testing"
)

func TestIs(t *testing.T) {
	for name, want := range map[string]bool{
		"RCON_PASSWORD": true, "rcon.password": true, "dbPassword": true, "API_KEY": true, "apiToken": true, "AWS_SECRET_ACCESS_KEY": true, "MYSQL_PWD": true, "DB_PASS": true,
		"MOTD": false, "BYPASS": false, "PASSWORD_FILE": false, "TOKEN_LIMIT": false, "KEY": false,
	} {
		if got := Is(name, "hunter2"); got != want {
			t.Errorf("%s is a secret: %v", name, got)
		}
	}
	for _, value := range []any{"", "%RCON%", "{{RCON}}", "${RCON}", 7, nil} {
		if Is("PASSWORD", value) {
			t.Errorf("the value %v is a secret", value)
		}
	}
}

func TestCommand(t *testing.T) {
	for line, want := range map[string]string{
		"java -jar a.jar":                                    "java -jar a.jar",
		"./run --rcon-password=hunter2 -p 1":                 "./run --rcon-password=%RCON_PASSWORD% -p 1",
		"./srcds +rcon_password hunter2 +map de":             "./srcds +rcon_password %RCON_PASSWORD% +map de",
		"java -Drcon.password=hunter2 -jar a.jar":            "java -Drcon.password=%RCON_PASSWORD% -jar a.jar",
		`./run --token "hunter2 hunter2" x`:                  "./run --token %TOKEN% x",
		`./run '--password=hunter2 hunter2' x`:               `./run '--password=%PASSWORD%' x`,
		"API_TOKEN=hunter2 ./run":                            "API_TOKEN=%API_TOKEN% ./run",
		"./run --token %TOKEN% --password {{RCON_PASSWORD}}": "./run --token %TOKEN% --password {{RCON_PASSWORD}}",
		"./run mysql://me:hunter2@db/x":                      "./run mysql://me:%URL_PASSWORD%@db/x",
		"echo the secret is out":                             "echo the secret is out",
	} {
		got, found := Command(line)
		if got != want {
			t.Errorf("%q became %q, want %q", line, got, want)
		}
		if (len(found) > 0) != strings.Contains(line, "hunter2") {
			t.Errorf("%q: found %q", line, found)
		}
	}
}

func TestWords(t *testing.T) {
	got, found := Words([]string{"./run", "--password", "hun ter2", "-Dapi.token=it's", "a=b", "--token"})
	if want := []string{"./run", "--password", "%PASSWORD%", "-Dapi.token=%API_TOKEN%", "a=b", "--token"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"PASSWORD", "API_TOKEN"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestHide(t *testing.T) {
	for _, text := range []string{"/usr/bin/mcrcon -H localhost -p hunter2 stop", "https://me:hunter2@example.org/x", "./run --token=hunter2", "./run '--token=hunter2 x'"} {
		if got := Hide(text); strings.Contains(got, "hunter2") || !strings.Contains(got, Hidden) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestIn(t *testing.T) {
	text := "rcon.password=hunter2\nenable-rcon=true\n  password: \"hunter2\"\n\"api-token\": \"hunter2\",\nsecret = \"%SECRET%\"\ntoken: null\nmessage: Wrong password: try again\n#password: x\npassword:\n"
	if got, want := In([]byte(text)), []string{"rcon.password", "password", "api-token"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func FuzzCommand(f *testing.F) {
	f.Add("./run --rcon-password=hunter2 'a b' mysql://me:x@db")
	f.Fuzz(func(t *testing.T, line string) {
		masked, _ := Command(line)
		if again, found := Command(masked); again != masked && len(found) == 0 {
			t.Errorf("%q changed to %q without a secret", masked, again)
		}
		Hide(line)
		In([]byte(line))
	})
}
