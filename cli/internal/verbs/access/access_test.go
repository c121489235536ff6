package access_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/orreryhq/orrery/cli/internal/verbs/access"
)

// TestMain also makes the test binary a browser: it follows the redirects of an address.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "http://") {
		if response, err := http.Get(os.Args[1]); err == nil {
			response.Body.Close()
		}
		return
	}
	clitest.Main(m)
}

func TestOutput(t *testing.T) {
	var cases []clitest.Case
	for _, args := range []string{
		"user sessions admin",
		"user sessions admin -o name",
		"user sessions admin -o json",
		"user sessions admim",
		"user sessions admin --end ABC",
		"user sessions admin --all --end ABC",
		"user set admin",
		"user password admin",
		"role set VIEWER",
		"role set VIEWER --remove groups.veiw",
		"role set VIEWER --add groups.update --remove groups.view",
		"user remove-second-factor admin",
		"user remove-second-factor admin --yes",
		"user remove-second-factor admim --yes",
		"second-factor status",
		"second-factor enrol",
		"second-factor enrol --password-file testdata/password",
		"second-factor enrol --password-file testdata/password -o name",
		"second-factor confirm",
		"second-factor confirm --code 123456",
		"second-factor disable --code 654321",
		"passwd",
		"status",
		"status -o json",
	} {
		cases = append(cases, clitest.Case{Args: args})
	}
	clitest.Golden(t, access.Commands, cases)
}

// gateway speaks the part of the API that logins need. The user admin has the password "right".
type gateway struct {
	*httptest.Server
	// code is the code that a login needs; empty for none.
	code string
	// provider is what a browser brings back from the login provider; empty for no provider.
	provider string
	// tokens are the Authorization headers of requests for the own user.
	tokens []string
	// ended are the tokens that were logged out.
	ended []string
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/auth/login", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Username, Password, Code string }
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Username != "admin" || body.Password != "right" {
			refuse(w, http.StatusUnauthorized, "the name or the password is wrong")
			return
		}
		switch {
		case g.code != "" && body.Code == "":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"code":"SECOND_FACTOR_REQUIRED","message":"this user has a second factor"}}`)
			return
		case g.code != body.Code:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"code":"SECOND_FACTOR_WRONG","message":"the code is wrong"}}`)
			return
		}
		fmt.Fprint(w, `{"token":"t1","refreshToken":"r1","expiresInSeconds":3600}`)
	})
	mux.HandleFunc("POST /api/v1/auth/refresh", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusUnauthorized, "the login has ended")
	})
	mux.HandleFunc("POST /api/v1/auth/change-password", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"token":"t2","refreshToken":"r2","expiresInSeconds":3600,"status":"ok"}`)
	})
	mux.HandleFunc("POST /api/v1/auth/logout", func(w http.ResponseWriter, r *http.Request) {
		g.ended = append(g.ended, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /api/v1/auth/oidc", func(w http.ResponseWriter, _ *http.Request) {
		if g.provider == "" {
			fmt.Fprint(w, `{"enabled":false,"issuer":null,"loginUrl":null}`)
			return
		}
		fmt.Fprintf(w, `{"enabled":true,"issuer":"https://login.example.org","loginUrl":"%s/api/v1/auth/oidc/login"}`, g.URL)
	})
	var challenge string
	mux.HandleFunc("GET /api/v1/auth/oidc/login", func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		challenge = asked.Get("code_challenge")
		http.Redirect(w, r, asked.Get("redirect_uri")+"?state="+asked.Get("state")+"&"+g.provider, http.StatusFound)
	})
	mux.HandleFunc("POST /api/v1/auth/oidc/exchange", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Code, CodeVerifier string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		sum := sha256.Sum256([]byte(body.CodeVerifier))
		if body.Code != "c1" || base64.RawURLEncoding.EncodeToString(sum[:]) != challenge {
			refuse(w, http.StatusUnauthorized, "the code is not valid")
			return
		}
		fmt.Fprint(w, `{"token":"t3","refreshToken":"r3","expiresInSeconds":3600,"user":{"username":"ann"}}`)
	})
	mux.HandleFunc("GET /api/v1/system/version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"version":"1.2.3"}`)
	})
	mux.HandleFunc("GET /api/v1/auth/me", func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		g.tokens = append(g.tokens, token)
		if token == "ended" || token == "" {
			refuse(w, http.StatusUnauthorized, "the token is no longer valid")
			return
		}
		fmt.Fprint(w, `{"username":"admin","role":"ADMIN","permissions":[],"future":{"a":[1]}}`)
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":"X","message":%q}}`, message)
}

// terminal is where a test runs commands, with settings that stay between them.
type terminal struct {
	t        *testing.T
	env      map[string]string
	settings *settings.Store
	// in is what a person types; empty means that there is no terminal.
	in string
}

func newTerminal(t *testing.T) *terminal {
	return &terminal{t: t, env: map[string]string{}, settings: settings.New(filepath.Join(t.TempDir(), "config.yaml"), nil)}
}

func (m *terminal) run(args ...string) clitest.Result {
	m.t.Helper()
	var out, errors bytes.Buffer
	a := &app.App{
		In: strings.NewReader(m.in), Out: &out, Err: &errors, Interactive: m.in != "", Settings: m.settings,
		Env: func(name string) string { return m.env[name] },
	}
	code := root.Run(m.t.Context(), a, args)
	return clitest.Result{Out: out.String(), Err: errors.String(), Code: code}
}

// expect checks the exit code and that the output has each text.
func (m *terminal) expect(got clitest.Result, code int, texts ...string) {
	m.t.Helper()
	for _, text := range texts {
		if got.Code != code || !strings.Contains(got.String(), text) {
			m.t.Errorf("exit code %d, want %d and %q in\n%s", got.Code, code, text, got)
		}
	}
}

// know stores a context with a login.
func (m *terminal) know(name, server string, login *settings.Login) {
	m.t.Helper()
	err := m.settings.Change(m.t.Context(), func(file *settings.File) error {
		file.Current = name
		file.Contexts = append(file.Contexts, settings.Context{Name: name, Servers: []string{server}, Login: login})
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// dataOf returns the data directory of a standalone at a URL. An empty password means that its file is gone.
func dataOf(t *testing.T, url, password string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "admin-password")
	if password != "" {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ready := fmt.Sprintf(`{"api":%q,"user":"admin","passwordFile":%q,"pid":1}`, url, file)
	if err := os.WriteFile(filepath.Join(dir, "ready.json"), []byte(ready), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoginToAStandaloneNeedsNoTyping(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.expect(m.run("login", "--data", dataOf(t, g.URL, "right")), exit.OK, "logged in to "+g.URL+" as admin (context local)")
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin\n")
	if got := strings.Join(g.tokens, " "); got != "t1" {
		t.Errorf("the tokens sent are %q", got)
	}
}

func TestEachStandaloneHasAContext(t *testing.T) {
	first, second, m := newGateway(t), newGateway(t), newTerminal(t)
	one, two := dataOf(t, first.URL, "right"), dataOf(t, second.URL, "right")
	m.expect(m.run("login", "--data", one), exit.OK, "(context local)")
	m.expect(m.run("login", "--data", two), exit.OK, "(context local-2)", "the current context is now local-2", "orrery context use local\n")
	m.expect(m.run("login", "--data", one), exit.OK, "(context local)")
	m.expect(m.run("login", second.URL, "--username", "admin", "--password-file", filepath.Join(two, "admin-password")), exit.OK, "(context local-2)")
	third := newGateway(t) // a restart with another port
	moved := dataOf(t, third.URL, "right")
	if err := os.Rename(filepath.Join(moved, "ready.json"), filepath.Join(one, "ready.json")); err != nil {
		t.Fatal(err)
	}
	m.expect(m.run("login", "--data", one), exit.OK, "logged in to "+third.URL+" as admin (context local)")
	if list := m.run("context", "list"); len(strings.Split(strings.TrimSpace(list.Out), "\n")) != 3 {
		t.Errorf("the contexts are\n%s", list)
	}
}

func TestALoginAtAServerWithSeveralContexts(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("admins", g.URL, nil)
	m.know("others", g.URL+"/", nil)
	err := m.settings.Change(t.Context(), func(file *settings.File) error { file.Find("admins").Username = "admin"; return nil })
	if err != nil {
		t.Fatal(err)
	}
	m.in = "right\n"
	m.expect(m.run("login", g.URL, "--username", "admin"), exit.OK, "(context admins)")
	m.expect(m.run("login", "--context", "others", "--username", "admin"), exit.OK, "(context others)")
	m.expect(m.run("login", g.URL, "--username", "admin", "--name", "third"), exit.OK, "(context third)")
	m.env["ORRERY_CONTEXT"] = "others"
	m.expect(m.run("login", "--username", "admin"), exit.OK, "(context others)")
	m.expect(m.run("login", g.URL, "--username", "admin", "--name", "third"), exit.OK, "commands still use the context others")
}

func TestThePasswordOfAStandaloneGoesToNoOtherServer(t *testing.T) {
	g, other, m := newGateway(t), newGateway(t), newTerminal(t)
	t.Chdir(t.TempDir())
	if err := os.Symlink(dataOf(t, g.URL, "right"), "data"); err != nil {
		t.Fatal(err)
	}
	const asks = "username: there is no terminal to ask on"
	m.expect(m.run("login", "--server", other.URL), exit.Usage, asks)
	m.know("other", other.URL, nil)
	m.expect(m.run("login", "--context", "other"), exit.Usage, asks)
	m.env["ORRERY_SERVER"] = other.URL
	m.expect(m.run("login"), exit.Usage, asks)
	m.expect(m.run("login", "--data", "data", "--server", other.URL), exit.Usage, "--data cannot be combined")
	m.expect(m.run("login", other.URL, "--data", "data"), exit.Usage, "--data cannot be combined")
	m.expect(m.run("login", "--data", "data"), exit.OK, "logged in to "+g.URL)
}

func TestAServerThatIsThatOfAContextUsesItsLogin(t *testing.T) {
	g, other, m := newGateway(t), newGateway(t), newTerminal(t)
	m.know("first", g.URL, &settings.Login{Token: "of-first"})
	m.know("second", "http://127.0.0.1:1", &settings.Login{Token: "of-second"})
	m.expect(m.run("get", "me", "-o", "name", "--server", g.URL+"/"), exit.OK, "admin")
	m.env["ORRERY_SERVER"] = g.URL
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
	m.expect(m.run("get", "me", "--context", "second"), exit.Unavailable, "cannot reach http://127.0.0.1:1")
	m.env["ORRERY_SERVER"] = other.URL
	m.expect(m.run("get", "me"), exit.Denied, "log in: orrery login "+other.URL)
	m.expect(m.run("get", "me", "-o", "name", "--server", other.URL, "--context", "first"), exit.OK, "admin")
	if got := strings.Join(g.tokens, " ") + "; " + strings.Join(other.tokens, " "); got != "of-first of-first;  of-first" {
		t.Errorf("the tokens sent are %q", got)
	}
}

func TestUpLogsInAgain(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	data := dataOf(t, g.URL, "right")
	lock := flock.New(filepath.Join(data, "lock"))
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if err := os.WriteFile(filepath.Join(data, "lock"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := []string{"up", "--data", data}
	m.expect(m.run(up...), exit.OK, "runs already at", "logged in to "+g.URL)
	if again := m.run(up...); strings.Contains(again.String(), "logged in") {
		t.Errorf("it logs in although the user is logged in:\n%s", again)
	}
	m.expect(m.run("logout"), exit.OK, "logged out of local")
	m.expect(m.run(up...), exit.OK, "logged in to "+g.URL)
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
	m.know("other", "http://127.0.0.1:1", &settings.Login{Token: "t"})
	m.expect(m.run(up...), exit.OK, "the current context is now local", "logged in to "+g.URL)
	m.expect(m.run("logout"), exit.OK, "logged out of local")
	if err := os.Remove(filepath.Join(data, "admin-password")); err != nil {
		t.Fatal(err)
	}
	m.expect(m.run(up...), exit.OK, "you are not logged in there: orrery login --data "+data)
}

func TestLogoutEndsTheLoginOfTheContext(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("local", g.URL, &settings.Login{Token: "stored"})
	m.env["ORRERY_TOKEN"] = "from-env"
	m.expect(m.run("logout"), exit.OK, "logged out of local")
	m.expect(m.run("logout"), exit.OK, "local was not changed: you are not logged in")
	if got := strings.Join(g.ended, " "); got != "stored" {
		t.Errorf("the tokens that ended are %q", got)
	}
}

func TestInputThatIsNoPassword(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	for content, want := range map[string]int{"right": exit.OK, "right\n": exit.OK, "right\r\n": exit.OK, "": exit.Usage, "\n": exit.Usage, "wrong\n": exit.Denied} {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := m.run("login", g.URL, "--username", "admin", "--password-file", secret); r.Code != want {
			t.Errorf("%q: exit code %d, want %d\n%s", content, r.Code, want, r)
		}
	}
	m.in = "admin\n" // and then the end of the input
	m.expect(m.run("login", g.URL), exit.Failed, "the input ended without an answer")
	for _, token := range []string{"", "two words", "token\nof two lines"} {
		m.in = token
		r := m.run("login", g.URL, "--token-file", "-")
		m.expect(r, exit.Usage, "has no API token")
		if strings.Contains(r.String(), "words") || strings.Contains(r.String(), "lines") {
			t.Errorf("the token is shown:\n%s", r)
		}
	}
}

func TestSettingsThatCannotBeUsed(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.in = "right\n"
	m.settings = settings.New("", nil)
	m.expect(m.run("login", g.URL, "--username", "admin"), exit.Failed, "is not stored", "ORRERY_CONFIG")
	m.env["ORRERY_SERVER"], m.env["ORRERY_TOKEN"] = g.URL, " from-env\r\n"
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
	broken := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(broken, []byte("contexts: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.settings = settings.New(broken, nil)
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
	clear(m.env)
	for _, args := range [][]string{{"get", "me"}, {"get", "me", "--server", g.URL}, {"logout"}, {"context", "list"}, {"login", g.URL, "--username", "admin"}} {
		r := m.run(args...)
		m.expect(r, exit.Failed, broken, "line 2, column 1", "move it away")
		if strings.Contains(r.Err, "password") {
			t.Errorf("%v asks for a password first:\n%s", args, r)
		}
	}
	blocked := filepath.Join(broken, "orrery", "config.yaml") // below a file there is no directory
	m.settings = settings.New(blocked, nil)
	m.expect(m.run("login", g.URL, "--username", "admin"), exit.Failed, "config.yaml")
}

func TestVersionInFormatsForPrograms(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.expect(m.run("version", "--client", "-o", "name"), exit.OK, app.Version()+"\n")
	m.expect(m.run("version", "--server", g.URL, "-o", "name"), exit.OK, app.Version()+"\n")
	m.expect(m.run("version", "--server", g.URL, "-o", "jsonpath=server"), exit.OK, "1.2.3\n")
	m.expect(m.run("down", "--data", ""), exit.Usage, "--data names no directory")
	m.expect(m.run("up", "--data", ""), exit.Usage, "--data names no directory")
	if r := m.run("down", "--data", t.TempDir(), "-o", "name"); r.Code != exit.OK || r.Out != "" {
		t.Errorf("down -o name prints %s", r)
	}
}

func TestContextsWithSeveralServers(t *testing.T) {
	m := newTerminal(t)
	m.know("production", "https://a.example", nil)
	m.expect(m.run("context", "set", "production", "--server-url", "https://a.example", "--server-url", "b.example"), exit.OK, "changed")
	m.expect(m.run("context", "list"), exit.OK, "https://a.example,https://b.example")
}

func TestTheAuthoritiesOfAContext(t *testing.T) {
	m := newTerminal(t)
	m.know("production", "https://a.example", nil)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	m.expect(m.run("context", "set", "production", "--ca", ca), exit.Usage, "no such file")
	if err := os.WriteFile(ca, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.expect(m.run("context", "set", "production", "--ca", ca), exit.Usage, "has no certificate in PEM")
	m.expect(m.run("context", "set", "production", "--ca", ""), exit.OK, "changed")
}

func TestContextChangesThatMakeNoSense(t *testing.T) {
	m := newTerminal(t)
	m.know("one", "https://a.example", &settings.Login{Token: "of-one"})
	m.know("two", "https://b.example", nil)
	m.expect(m.run("context", "set", "two", "--rename", "one"), exit.Conflict, `there is a context "one" already`)
	m.expect(m.run("context", "set", "two"), exit.Usage, "nothing to change")
	m.expect(m.run("context", "set", "two", "--server-url", "ftp://b.example"), exit.Usage, "ftp://b.example")
	m.expect(m.run("context", "set", "two", "--rename", "two"), exit.OK, "changed")
	m.expect(m.run("context", "set", "two", "--rename", "a\x1b[31m"), exit.Usage, `the name "a\x1b[31m": it has control characters`)
	m.expect(m.run("login", "--name", "a\x1b[31m", "https://b.example"), exit.Usage, "control characters")
	m.expect(m.run("context", "delete", "two"), exit.OK, "no context is the current one")
	if file, err := m.settings.Read(); err != nil || len(file.Contexts) != 1 || file.Contexts[0].Login.Token != "of-one" {
		t.Errorf("the settings are %+v, %v", file, err)
	}
}

func TestLoginAsksForThePasswordIfItsFileIsGone(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	data := dataOf(t, g.URL, "")
	m.expect(m.run("login", "--data", data), exit.Usage, "there is no terminal to ask on", "pass --password-file FILE")
	m.in = "right\n"
	m.expect(m.run("login", "--data", data), exit.OK, "password of admin: ", "logged in to")
	m.in = "wrong\n"
	m.expect(m.run("login", "--data", data), exit.Denied, "check the name and the password")
}

func TestLoginWithFiles(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.expect(m.run("login", g.URL, "--username", "admin", "--password-file", secret, "--name", "one"), exit.OK, "(context one)")
	m.expect(m.run("login", g.URL, "--token-file", secret, "--name", "two"), exit.OK, "as admin (context two)")
	m.expect(m.run("get", "me"), exit.OK, "ADMIN")
	if got := g.tokens[len(g.tokens)-1]; got != "right" {
		t.Errorf("the token sent is %q", got)
	}
	m.expect(m.run("login", "--data", t.TempDir()), exit.NotFound, "no standalone is ready", "orrery up --data")
}

func TestALoginThatEnded(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("local", g.URL, &settings.Login{Token: "ended", RefreshToken: "r", ExpiresAt: time.Now().Add(-time.Hour)})
	m.expect(m.run("get", "me"), exit.Denied, "the token is no longer valid", "log in: orrery login")
}

func TestAWrongContext(t *testing.T) {
	m := newTerminal(t)
	m.know("production", "http://127.0.0.1:1", nil)
	for _, args := range [][]string{{"get", "me", "--context", "prodution"}, {"context", "use", "prodution"}, {"context", "delete", "prodution"}, {"context", "set", "prodution", "--group", "g"}} {
		m.expect(m.run(args...), exit.NotFound, `there is no context "prodution"`, "did you mean production?")
	}
	m.env["ORRERY_CONTEXT"] = "staging"
	m.expect(m.run("get", "me"), exit.NotFound, `there is no context "staging"`, "orrery context list")
}

func TestContextCommandsNeedAName(t *testing.T) {
	m := newTerminal(t)
	for _, verb := range []string{"use", "set", "delete"} {
		m.expect(m.run("context", verb), exit.Usage, "needs the name of a context")
	}
}

func TestVariablesChooseServerAndToken(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("dead", "http://127.0.0.1:1", &settings.Login{Token: "stored"})
	m.env["ORRERY_SERVER"], m.env["ORRERY_TOKEN"] = g.URL, "from-env"
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
	m.env["ORRERY_TOKEN"] = "from\nenv"
	m.expect(m.run("get", "me", "-o", "name"), exit.Usage, "ORRERY_TOKEN has control characters")
	m.env["ORRERY_SERVER"], m.env["ORRERY_TOKEN"] = "http://127.0.0.1:1", "from-env"
	m.expect(m.run("get", "me", "-o", "name", "--server", g.URL), exit.OK, "admin")
	delete(m.env, "ORRERY_SERVER")
	m.know("alive", g.URL, nil)
	m.env["ORRERY_CONTEXT"] = "dead"
	m.expect(m.run("get", "me", "-o", "name", "--context", "alive"), exit.OK, "admin")
	if got := strings.Join(g.tokens, " "); got != "from-env from-env from-env" {
		t.Errorf("the tokens sent are %q", got)
	}
}

func TestAServerThatIsDown(t *testing.T) {
	m := newTerminal(t)
	m.expect(m.run("get", "me", "--server", "http://127.0.0.1:1"), exit.Unavailable, "cannot reach http://127.0.0.1:1", "orrery up")
}

func TestFieldsOfANewerServerSurvive(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("local", g.URL, &settings.Login{Token: "t"})
	m.expect(m.run("get", "me", "-o", "jsonpath={.future.a[0]}"), exit.OK, "1\n")
}

func TestPasswdKeepsTheLogin(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("local", g.URL, &settings.Login{Token: "t1"})
	m.in = "right\nbetter-one\nother\n"
	m.expect(m.run("passwd"), exit.Usage, "the two passwords differ")
	m.in = "right\nbetter-one\nbetter-one\n"
	m.expect(m.run("passwd"), exit.OK, "your password was changed")
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
	if got := g.tokens[len(g.tokens)-1]; got != "t2" {
		t.Errorf("the token sent is %q", got)
	}
}

func TestRenamingAContextKeepsItsLogin(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.know("local", g.URL, &settings.Login{Token: "t1"})
	m.expect(m.run("context", "set", "local", "--rename", "home"), exit.OK, "changed")
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin")
}
