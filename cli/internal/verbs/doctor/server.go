package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// serverTimeout bounds the requests to one server. Servers are asked one after the other.
const serverTimeout = 5 * time.Second

// checkServers asks each server of the context.
func checkServers(ctx context.Context, s *subject) (found findings) {
	for _, address := range s.target.Servers {
		s.checkServer(ctx, &found, address)
	}
	return found
}

func (s *subject) checkServer(ctx context.Context, found *findings, address string) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	config, err := app.Target{Servers: []string{address}, CA: s.target.CA}.Config()
	if err != nil {
		found.add(fail, exit.HintOf(err), "%v", err)
		return
	}
	config.MaxAttempts = 1
	client, err := orrery.New(config)
	if err != nil {
		found.add(fail, "orrery context set NAME --server-url http://HOST:8080", "%v", err)
		return
	}
	defer client.Close()
	begun := time.Now()
	response, err := client.Do(ctx, orrery.Request{Method: http.MethodGet, Path: "/api/v1/system/version"})
	if err != nil {
		if !addCertificateError(found, address, err) {
			found.add(fail, unreachableFix(err), "%s: %v", address, timedOut(err))
		}
		return
	}
	defer response.Body.Close()
	took := time.Since(begun)
	var body json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || gjson.GetBytes(body, "version").String() == "" {
		found.add(fail, "check the address: orrery context list", "%s: it answers, but not as Orrery does", address)
		return
	}
	r := reached{address: address, version: gjson.GetBytes(body, "version").String()}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		// The header has whole seconds. The middle of both errors is what is expected.
		r.offset = date.Add(500 * time.Millisecond).Sub(begun.Add(took / 2))
	}
	s.reached = append(s.reached, r)
	s.checkReady(ctx, found, client, r, took)
	checkTLS(found, address, response)
}

// timedOut returns err without the address, and says in words that a server was too slow.
func timedOut(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", serverTimeout)
	}
	var unreachable *orrery.UnreachableError
	if errors.As(err, &unreachable) {
		return unreachable.Err
	}
	return err
}

func unreachableFix(err error) string {
	if hint := exit.HintOf(err); hint != "" {
		return hint
	}
	return "see the log of the gateway"
}

func (s *subject) checkReady(ctx context.Context, found *findings, client *orrery.Client, r reached, took time.Duration) {
	ready, err := client.GetSystemReadiness(ctx)
	switch {
	case err != nil:
		found.add(fail, "see the log of that gateway, and that etcd runs", "%s is not ready: %v", r.address, timedOut(err))
	case ready.Status != "READY":
		found.add(fail, "see the log of that gateway, and that etcd runs", "%s is %s: %v", r.address, ready.Status, ready.Checks)
	default:
		found.add(ok, "", "%s is ready, version %s, answers in %d ms", r.address, r.version, took.Milliseconds())
	}
}

func checkTLS(found *findings, address string, response *http.Response) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if response.TLS == nil || len(response.TLS.PeerCertificates) == 0 {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			found.add(warn, "give the gateway a certificate with tls.cert and tls.key, or put a proxy with TLS before it, then: orrery login https://"+u.Hostname(), "%s is not encrypted: passwords and tokens can be read on the way", address)
		}
		return
	}
	judgeCertificate(found, address, response.TLS.PeerCertificates)
}

// checkTransport warns of a gateway that other machines reach without TLS.
func checkTransport(ctx context.Context, s *subject) (found findings) {
	overview, err := s.client.GetOverview(ctx)
	switch {
	case err != nil:
		found.unable(err, "")
	case overview.InsecureHTTP:
		found.add(warn, "set tls.cert and tls.key, or tls.acme.hosts, or behind-proxy; then remove insecure-http",
			"%s serves other machines without TLS, as insecure-http permits: passwords and tokens can be read on the way", s.client.Address())
	default:
		found.add(ok, "", "%s serves other machines over TLS or behind a proxy only", s.client.Address())
	}
	return found
}

const (
	// clockWarn and clockFail are how much clocks may differ. They are measured to about a second.
	clockWarn = 5 * time.Second
	clockFail = time.Minute
)

func checkClock(_ context.Context, s *subject) (found findings) {
	for _, r := range s.reached {
		judgeClock(&found, r.address, "this machine", r.offset)
	}
	return found
}

// judgeClock judges how far a clock is ahead of another.
func judgeClock(found *findings, whose, other string, ahead time.Duration) {
	const fix = "on the machine whose clock is wrong: sudo timedatectl set-ntp true"
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	switch difference := ahead.Abs().Round(time.Second); {
	case difference >= clockFail:
		found.add(fail, fix, "the clock of %s is %s %s that of %s", whose, difference, direction, other)
	case difference >= clockWarn:
		found.add(warn, fix, "the clock of %s is %s %s that of %s", whose, difference, direction, other)
	default:
		found.add(ok, "", "the clock of %s agrees with that of %s", whose, other)
	}
}

func checkVersion(_ context.Context, s *subject) (found findings) {
	own := app.Version()
	for _, r := range s.reached {
		if app.VersionsDiffer(own, r.version) {
			found.add(warn, "install the orrery of version "+r.version, "this program is version %s and %s is %s", own, r.address, r.version)
		}
	}
	if len(found) == 0 {
		found.add(ok, "", "this program is version %s", own)
	}
	return found
}

func checkLogin(ctx context.Context, s *subject) (found findings) {
	me, err := s.client.GetCurrentUser(ctx)
	switch {
	case err == nil:
		s.loggedIn = true
		found.add(ok, "", "logged in as %s, role %s", me.Username, me.Role)
	case errors.Is(err, orrery.ErrUnauthenticated) && !s.hasLogin():
		found.add(skip, "orrery login", "not logged in")
	case errors.Is(err, orrery.ErrUnauthenticated):
		found.add(fail, "orrery login", "the login is no longer accepted: %v", err)
	default:
		found.add(fail, exit.HintOf(err), "%v", err)
	}
	return found
}

// hasLogin reports whether a token would be sent.
func (s *subject) hasLogin() bool {
	if s.app.Env("ORRERY_TOKEN") != "" {
		return true
	}
	file, err := s.app.Settings.Read()
	if err != nil {
		return false
	}
	c := file.Find(s.target.Context)
	return c != nil && (c.Login != nil || c.Keyring)
}
