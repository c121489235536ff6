// Package trusttest issues certificates for tests of services.
package trusttest

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
)

// Authority is an authority that is valid for a day.
type Authority struct {
	*pki.Authority
	t   testing.TB
	dir string
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a, err := pki.NewAuthority("test authority", time.Now(), time.Now().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{Authority: a, t: t, dir: t.TempDir()}
}

// Issue returns a certificate for a service, valid for an hour. hosts are its names as a server.
func (a *Authority) Issue(who pki.Identity, hosts ...string) pki.Pair {
	a.t.Helper()
	p, err := a.Authority.Issue(pki.Request{
		Name: who.Path(), Identity: who, Hosts: hosts, Server: true, Client: true, Now: time.Now(), Until: time.Now().Add(time.Hour),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return p
}

// File writes a new bundle of a service, which trusts this authority and others, and returns its path.
func (a *Authority) File(who pki.Identity, others ...*Authority) string {
	a.t.Helper()
	trusted := [][]byte{a.Pair().Cert}
	for _, o := range others {
		trusted = append(trusted, o.Pair().Cert)
	}
	path := filepath.Join(a.dir, strings.ReplaceAll(who.Path(), "/", "-")+".pem")
	Write(a.t, path, pki.NewBundle(a.Issue(who), trusted...))
	return path
}

// Peers returns what authenticates a service and its peers.
func (a *Authority) Peers(who pki.Identity) *trust.Peers {
	a.t.Helper()
	c, err := trust.Open(a.File(who), time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		a.t.Fatal(err)
	}
	return trust.ByCertificate(c)
}

// Write replaces a file at once.
func Write(t testing.TB, path string, text []byte) {
	t.Helper()
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		t.Fatal(err)
	}
}
