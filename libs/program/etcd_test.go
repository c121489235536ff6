package program_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
)

var errJoined = errors.New("it joined etcd")

// joins runs a program that ends with errJoined once it has joined etcd.
func joins(out io.Writer, args []string) (code int) {
	var s struct{ program.Settings }
	return program.Main(program.Spec{
		Name: "tester", About: "Joins etcd.", Into: &s, Common: &s.Settings,
		Build: func(program.Env) ([]lifecycle.Component, error) {
			return []lifecycle.Component{{Name: "joined", Start: func(context.Context) error { return errJoined }}}, nil
		},
	}, args, nil, out, out)
}

func runOnce(args ...string) (code int, output string) {
	var out proctest.Buffer
	code = joins(&out, args)
	return code, out.String()
}

// files are the paths of the certificates of a test.
type files struct {
	etcd, impostor                     storetest.TLS
	bundle, strangersBundle, cert, key string
	strangersAuthority, broken, absent string
}

func certificates(t *testing.T) files {
	t.Helper()
	dir, a, stranger := t.TempDir(), trusttest.New(t), trusttest.New(t)
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		trusttest.Write(t, path, text)
		return path
	}
	server, own := a.Issue(pki.Identity{Service: pki.Etcd}, "127.0.0.1"), a.Issue(pki.Identity{Service: pki.Scheduler})
	agent := a.Issue(pki.Identity{Service: pki.Agent, Name: "n1"}, "127.0.0.1")
	return files{
		etcd:     storetest.TLS{Cert: file("etcd.crt", server.Cert), Key: file("etcd.key", server.Key), Authority: file("authority.crt", a.Pair().Cert)},
		impostor: storetest.TLS{Cert: file("impostor.crt", agent.Cert), Key: file("impostor.key", agent.Key), Authority: file("authority.crt", a.Pair().Cert)},
		bundle:   a.File(pki.Identity{Service: pki.Scheduler}), strangersBundle: stranger.File(pki.Identity{Service: pki.Scheduler}),
		cert: file("own.crt", own.Cert), key: file("own.key", own.Key), strangersAuthority: file("stranger.crt", stranger.Pair().Cert),
		broken: file("broken", []byte("broken")), absent: filepath.Join(dir, "absent"),
	}
}

func TestAProgramJoinsAnEtcdWithCertificates(t *testing.T) {
	f := certificates(t)
	etcd := storetest.StartSecure(t, f.etcd)
	for name, c := range map[string]struct {
		args string
		code int
		says string
	}{
		"the bundle":                    {"--trust-file " + f.bundle, config.ExitFailure, errJoined.Error()},
		"files of its own":              {"--etcd-ca " + f.etcd.Authority + " --etcd-cert " + f.cert + " --etcd-key " + f.key, config.ExitFailure, errJoined.Error()},
		"the bundle and an authority":   {"--trust-file " + f.bundle + " --etcd-ca " + f.etcd.Authority, config.ExitFailure, errJoined.Error()},
		"no such bundle":                {"--trust-file " + f.absent, config.ExitUsage, "trust.file"},
		"a broken bundle":               {"--trust-file " + f.broken, config.ExitUsage, "not PEM"},
		"no such authority":             {"--etcd-ca " + f.absent, config.ExitUsage, "etcd.ca"},
		"a broken authority":            {"--etcd-ca " + f.broken, config.ExitUsage, "no certificate in PEM"},
		"a broken certificate":          {"--etcd-cert " + f.broken + " --etcd-key " + f.key, config.ExitUsage, "etcd.cert"},
		"the key of another":            {"--etcd-cert " + f.cert + " --etcd-key " + f.etcd.Key, config.ExitUsage, "private key does not match"},
		"a certificate without its key": {"--etcd-cert " + f.cert, config.ExitUsage, "etcd.key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := runOnce(append([]string{"--etcd-endpoints", etcd.Endpoint, "--admin-address", "127.0.0.1:0"}, strings.Fields(c.args)...)...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
}

func TestAProgramWithoutTheRightCertificateWaits(t *testing.T) {
	f := certificates(t)
	etcd, impostor := storetest.StartSecure(t, f.etcd), storetest.StartSecure(t, f.impostor)
	for name, c := range map[string]struct{ args, endpoint, says string }{
		"an agent as etcd":     {"--trust-file " + f.bundle, impostor.Endpoint, "nodeagent/n1 answers there, not etcd"},
		"no certificate":       {"--etcd-ca " + f.etcd.Authority, etcd.Endpoint, "certificate required"},
		"another authority":    {"--trust-file " + f.bundle + " --etcd-ca " + f.strangersAuthority, etcd.Endpoint, "unknown authority"},
		"of another authority": {"--trust-file " + f.strangersBundle + " --etcd-ca " + f.etcd.Authority, etcd.Endpoint, "tls:"},
	} {
		t.Run(name, func(t *testing.T) {
			var out proctest.Buffer
			code := make(chan int, 1)
			go func() {
				code <- joins(&out, append([]string{"--etcd-endpoints", c.endpoint, "--admin-address", "127.0.0.1:0"}, strings.Fields(c.args)...))
			}()
			await.That(t, "it waits", func() string {
				return await.Unless(strings.Contains(out.String(), "etcd is not reachable") && strings.Contains(out.String(), c.says), "%s", out.String())
			})
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil { // ends the program
				t.Fatal(err)
			}
			if got := <-code; got != config.ExitOK || strings.Contains(out.String(), errJoined.Error()) {
				t.Errorf("exit code %d:\n%s", got, out.String())
			}
		})
	}
}

func TestAProgramLogsInToEtcd(t *testing.T) {
	f := certificates(t)
	etcd := storetest.StartSecure(t, f.etcd)
	etcd.RequireLogin(t, "right")
	password := func(text string) string {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"the right password": {[]string{"--etcd-username", "root", "--etcd-password-file", password("right")}, config.ExitFailure, errJoined.Error()},
		"a wrong password":   {[]string{"--etcd-username", "root", "--etcd-password-file", password("wrong")}, config.ExitFailure, "authentication failed"},
		"no password":        {[]string{"--etcd-username", "root"}, config.ExitUsage, "etcd.password"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := runOnce(append([]string{"--etcd-endpoints", etcd.Endpoint, "--admin-address", "127.0.0.1:0", "--trust-file", f.bundle}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
}

func TestEndpointsOfEtcdAreAllEncryptedOrNone(t *testing.T) {
	for args, says := range map[string]string{
		"--etcd-endpoints http://a:1,https://b:1":                "etcd.endpoints",
		"--etcd-endpoints https://a:1,http://b:1":                "etcd.endpoints",
		"--etcd-endpoints http://a:1 --etcd-username x":          "etcd.username",
		"--etcd-endpoints http://a:1 --etcd-ca x":                "etcd.ca",
		"--etcd-endpoints http://a:1 --etcd-cert x --etcd-key y": "etcd.cert",
	} {
		if code, out := runOnce(strings.Fields(args)...); code != config.ExitUsage || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", args, code, config.ExitUsage, says, out)
		}
	}
}
