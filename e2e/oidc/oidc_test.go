// Package oidc_test logs in at a real OpenID Connect provider: Dex, which the module in dex builds.
// The tests run when ORRERY_E2E is oidc: make e2e-oidc.
package oidc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
)

const clientSecret = "a-secret-of-the-client"

// place is a standalone, a provider that can be stopped, and the programs.
type place struct {
	t *testing.T
	// bin has the programs, home what the command line stores.
	bin, home string
	// api is the URL of the gateway, issuer that of the provider.
	api, issuer string
	// socket is where the provider listens.
	socket *os.File
	// users is the file with the provider's users.
	users string
	// stop ends the provider.
	stop func()
}

// build compiles the programs. The provider is in a module of its own.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []struct{ dir, pkg string }{{root, "./standalone"}, {root, "./cli/cmd/orrery"}, {filepath.Join(root, "e2e/oidc/dex"), "."}} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", b.pkg)
		cmd.Dir = b.dir
		if b.pkg == "." {
			cmd.Env = append(os.Environ(), "GOWORK=off")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s in %s: %v\n%s", b.pkg, b.dir, err, out)
		}
	}
	return bin
}

func TestMain(m *testing.M) {
	if os.Getenv("ORRERY_E2E") != "oidc" {
		fmt.Println("left out: these scenarios compile a login provider, run make e2e-oidc")
		return
	}
	os.Exit(m.Run())
}

// start starts a standalone whose provider does not serve yet.
func start(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, bin: build(t), home: t.TempDir(), stop: func() {}}
	p.users = filepath.Join(p.home, "users.json")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.issuer = "http://" + listener.Addr().String() + "/dex"
	if p.socket, err = listener.(*net.TCPListener).File(); err != nil { // keeps the port for the provider
		t.Fatal(err)
	}
	t.Cleanup(func() { p.socket.Close() })
	p.stop = hangUp(listener)
	t.Cleanup(func() { p.stop() })
	secret := filepath.Join(p.home, "client-secret")
	if err := os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(p.home, "data")
	process(t, exec.Command(filepath.Join(p.bin, "standalone"), "-data", data, "-listen", "127.0.0.1:0",
		"-oidc-issuer", p.issuer, "-oidc-client-id", "orrery", "-oidc-client-secret-file", secret, "-oidc-roles", "admins=ADMIN,staff=VIEWER"))
	await.That(t, "the standalone", func() string {
		var ready struct{ API string }
		content, err := os.ReadFile(filepath.Join(data, "ready.json"))
		if err == nil {
			err = json.Unmarshal(content, &ready)
		}
		p.api = ready.API
		return await.Unless(err == nil, "%v", err)
	})
	return p
}

// hangUp closes all connections until the result is called.
func hangUp(listener net.Listener) (stop func()) {
	var done sync.WaitGroup
	done.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connection.Close()
		}
	})
	return func() { listener.Close(); done.Wait() }
}

// process runs a program until the result is called or the test ends.
func process(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(await.Patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
	})
	t.Cleanup(stop)
	return stop
}

// provide starts the provider.
func (p *place) provide() {
	p.t.Helper()
	p.stop()
	cmd := exec.Command(filepath.Join(p.bin, "dex"), "-listener", "3", "-issuer", p.issuer, "-client", "orrery",
		"-redirect", p.api+"/api/v1/auth/oidc/callback", "-users", p.users)
	cmd.Env = append(os.Environ(), "DEX_CLIENT_SECRET="+clientSecret)
	cmd.ExtraFiles = []*os.File{p.socket}
	p.stop = process(p.t, cmd)
	await.That(p.t, "the provider", func() string {
		r, err := http.Get(p.issuer + "/.well-known/openid-configuration")
		if err == nil {
			r.Body.Close()
		}
		return await.Unless(err == nil && r.StatusCode == http.StatusOK, "%v, %v", r, err)
	})
}

// withdraw stops the provider and hangs up on its callers.
func (p *place) withdraw() {
	p.t.Helper()
	p.stop()
	listener, err := net.FileListener(p.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	p.stop = hangUp(listener)
}

// know writes the users of the provider, who all have the password "right".
func (p *place) know(groups map[string][]string) {
	p.t.Helper()
	users := map[string]any{}
	for name, of := range groups {
		users[name] = map[string]any{"password": "right", "groups": of}
	}
	content, err := json.Marshal(users)
	if err == nil {
		err = os.WriteFile(p.users, content, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// command returns a command line with its own contexts.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, "orrery"), args...)
	cmd.Env = []string{"ORRERY_CONFIG=" + filepath.Join(p.home, "config.yaml"), "HOME=" + p.home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// run runs a command line.
func (p *place) run(args ...string) (out string, code int) {
	p.t.Helper()
	cmd := p.command(args...)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

// login logs in with the command line. The user opens the printed address and logs in there.
func (p *place) login(name string) (out string, code int) {
	p.t.Helper()
	cmd := p.command("login", p.api, "--oidc", "--name", name)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	timer := time.AfterFunc(await.Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var all strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if page, ok := strings.CutPrefix(lines.Text(), "  http"); ok {
			all.WriteString("browser: " + visit(p.t, "http"+page, name) + "\n")
		}
	}
	_ = cmd.Wait()
	return all.String() + stdout.String(), cmd.ProcessState.ExitCode()
}

var form = regexp.MustCompile(`<form method="post" action="([^"]*)"`)

// visit does what a user with a browser does: open the page, fill the form of the provider, and read the last page.
func visit(t *testing.T, page, name string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	browser := &http.Client{Jar: jar}
	do := func(request *http.Request, err error) (at *url.URL, text string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		response, err := browser.Do(request.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.Request.URL, string(body)
	}
	at, text := do(http.NewRequest(http.MethodGet, page, nil))
	found := form.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	action, err := at.Parse(strings.ReplaceAll(found[1], "&amp;", "&"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, action.String(), strings.NewReader(url.Values{"login": {name}, "password": {"right"}}.Encode()))
	if err == nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	_, text = do(request, err)
	return text
}

func TestUsersOfDexLogInWithTheCommandLine(t *testing.T) {
	p := start(t)
	p.know(map[string][]string{"ann": {"everybody", "staff"}, "bob": {"guests"}, "admin": {"admins"}})
	expect := func(what string, code int, texts ...string) func(string, int) {
		return func(out string, got int) {
			t.Helper()
			for _, text := range texts {
				if got != code || !strings.Contains(out, text) {
					t.Errorf("%s: exit code %d, want %d and %q in\n%s", what, got, code, text, out)
				}
			}
		}
	}
	expect("the provider is away", 3, "does not answer as it should", "You are not logged in")(p.login("ann"))
	password := filepath.Join(p.home, "data/admin-password")
	expect("passwords work without the provider", 0, "logged in to")(p.run("login", p.api, "--username", "admin", "--password-file", password, "--name", "local"))

	p.provide() // the standalone is not restarted
	expect("a first login", 0, "You are logged in", "logged in to "+p.api+" as ann")(p.login("ann"))
	expect("who it is", 0, `"username": "ann"`, `"role": "VIEWER"`, `"provider": "`+p.issuer+`"`)(p.run("get", "me", "-o", "json", "--context", "ann"))
	expect("groups that give no role", 3, "no group of the user bob gives a role here")(p.login("bob"))
	expect("the name of a local user", 3, "there is a local user admin")(p.login("admin"))

	p.know(map[string][]string{"ann": {"admins"}})
	expect("another group", 0, "as ann")(p.login("ann"))
	expect("another role", 0, `"role": "ADMIN"`)(p.run("get", "me", "-o", "json", "--context", "ann"))
	expect("the audit", 0, "user.create", "user.update", "auth.login-failed")(p.run("get", "audit", "--context", "local"))

	p.withdraw()
	expect("passwords work without the provider", 0, "logged in to")(p.run("login", p.api, "--username", "admin", "--password-file", password, "--name", "local"))
	expect("its users stay logged in", 0, `"username": "ann"`)(p.run("get", "me", "-o", "json", "--context", "ann"))
	p.provide()
	expect("the provider is back", 0, "as ann")(p.login("ann"))
}
