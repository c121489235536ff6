package access_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
)

func TestALoginAsksForACodeOnlyIfTheServerWantsOne(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	password := filepath.Join(dataOf(t, g.URL, "right"), "admin-password")
	login := []string{"login", g.URL, "--username", "admin", "--password-file", password}
	m.expect(m.run(login...), exit.OK, "logged in")
	g.code = "123456"
	m.expect(m.run(login...), exit.Usage, "there is no terminal to ask on", "--code CODE, or set ORRERY_CODE")
	m.expect(m.run(append(login, "--code", "000000")...), exit.Denied, "the code is wrong", "check the name, the password and the code")
	m.expect(m.run(append(login, "--code", "123456")...), exit.OK, "logged in")
	m.env["ORRERY_CODE"] = "123456"
	m.expect(m.run(login...), exit.OK, "logged in")
	m.env["ORRERY_CODE"], m.in = "", "123456\n"
	m.expect(m.run(login...), exit.OK, "code of your authenticator", "logged in")
	m.in = "right\n123456\n"
	m.expect(m.run("login", g.URL, "--username", "admin"), exit.OK, "logged in")
}

func TestALoginAtAProviderTakesWhatTheBrowserBringsBack(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	m.expect(m.run("login", g.URL, "--oidc"), exit.Failed, "the server has no login provider", "leave out --oidc")
	m.expect(m.run("login", g.URL, "--oidc", "--username", "ann"), exit.Usage, "oidc")
	m.env["BROWSER"] = os.Args[0]
	g.provider = "code=c1"
	m.expect(m.run("login", g.URL, "--oidc"), exit.OK, "log in with the browser that opens", "logged in to "+g.URL+" as ann")
	m.expect(m.run("get", "me", "-o", "name"), exit.OK, "admin\n")
	if got := strings.Join(g.tokens, " "); got != "t3" {
		t.Errorf("the tokens sent are %q", got)
	}
	g.provider = "code=c2"
	m.expect(m.run("login", g.URL, "--oidc"), exit.Denied, "the code is not valid")
	g.provider = "error=access_denied&error_description=no+group+of+the+user+ann+gives+a+role+here"
	m.expect(m.run("login", g.URL, "--oidc"), exit.Denied, "no group of the user ann gives a role here")
}

// person opens the address in what a command prints.
type person struct {
	printed bytes.Buffer
	opened  sync.WaitGroup
}

func (p *person) Write(b []byte) (int, error) {
	p.printed.Write(b)
	if _, page, ok := strings.Cut(string(b), "\n  http://"); ok {
		p.opened.Go(func() {
			if response, err := http.Get("http://" + strings.TrimSpace(page)); err == nil {
				response.Body.Close()
			}
		})
	}
	return len(b), nil
}

func TestALoginWithoutABrowserPrintsTheAddress(t *testing.T) {
	g, m := newGateway(t), newTerminal(t)
	g.provider = "code=c1"
	for _, browser := range []string{"", "/no/such/program"} {
		var out bytes.Buffer
		user := new(person)
		a := &app.App{
			In: strings.NewReader(""), Out: &out, Err: user, Settings: m.settings,
			Env: func(name string) string { return map[string]string{"BROWSER": browser}[name] },
		}
		code := root.Run(t.Context(), a, []string{"login", g.URL, "--oidc"})
		user.opened.Wait()
		m.expect(clitest.Result{Out: out.String(), Err: user.printed.String(), Code: code}, exit.OK, "open this address in a browser on this machine", "logged in to "+g.URL+" as ann")
	}
}

func TestEnrollingOnATerminalAsksForTheCode(t *testing.T) {
	m := newTerminal(t)
	server := clitest.NewServer(t)
	m.know("here", server.URL, &settings.Login{Token: "t"})
	m.in = "right\n123456\n"
	m.expect(m.run("second-factor", "enrol"), exit.OK, "URI: otpauth://totp/", "secret: GEZD", "AAAA-BBBB-CCCC-DDDD")
}
