package certificate

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// pair returns a certificate for a host that is valid from a time on for 30 days.
func pair(t *testing.T, host string, from time.Time) pki.Pair {
	t.Helper()
	until := from.AddDate(0, 0, 30)
	authority, err := pki.NewAuthority("test", from, until)
	if err != nil {
		t.Fatal(err)
	}
	p, err := authority.Issue(pki.Request{Name: host, Hosts: []string{"*.wild.example", host, "127.0.0.1"}, Server: true, Now: from, Until: until})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// put writes a pair into a directory and returns the two files.
func put(t *testing.T, dir string, p pki.Pair) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, content := range map[string][]byte{cert: p.Cert, key: p.Key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// journal is a log that a test reads.
type journal struct{ bytes.Buffer }

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&j.Buffer, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// take returns what was logged since the last call.
func (j *journal) take() string {
	defer j.Reset()
	return j.String()
}

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

// serves returns the first name of the certificate that clients get.
func serves(t *testing.T, f *files) string {
	t.Helper()
	got, err := f.get(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return hostsOf(got.Leaf)[0]
}

func TestFilesThatCannotBeServedFailTheStart(t *testing.T) {
	t.Parallel()
	good := pair(t, "a.example", noon)
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	for name, c := range map[string]struct {
		edit         func(*pki.Pair)
		field, wants string
	}{
		"text instead of a certificate": {func(p *pki.Pair) { p.Cert = []byte("hello") }, certField, "has no certificate in PEM"},
		"an empty certificate":          {func(p *pki.Pair) { p.Cert = nil }, certField, "has no certificate in PEM"},
		"a broken certificate": {func(p *pki.Pair) {
			p.Cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("hello")})
		}, certField, "cannot be used"},
		"a key in place of the certificate": {func(p *pki.Pair) { p.Cert = p.Key }, certField, "has no certificate in PEM"},
		"text instead of a key":             {func(p *pki.Pair) { p.Key = []byte("hello") }, keyField, "has no private key in PEM"},
		"a broken key": {func(p *pki.Pair) {
			p.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("hello")})
		}, keyField, "cannot be used"},
		"an encrypted key":               {func(p *pki.Pair) { p.Key = encrypted }, keyField, "is encrypted"},
		"the key of another certificate": {func(p *pki.Pair) { p.Key = pair(t, "b.example", noon).Key }, keyField, "does not belong to the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := good
			c.edit(&p)
			cert, key := put(t, t.TempDir(), p)
			_, err := openFiles(cert, key, new(journal).logger(), at(noon))
			if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != c.field || !strings.Contains(errs.MessageOf(err), c.wants) {
				t.Errorf("%s: %v", errs.FieldOf(err), err)
			}
		})
	}
}

func TestFilesThatCannotBeReadFailTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := put(t, dir, pair(t, "a.example", noon))
	missing := filepath.Join(dir, "missing.pem")
	for _, c := range []struct{ cert, key, field, wants string }{
		{missing, key, certField, "does not exist"},
		{cert, missing, keyField, "does not exist"},
		{dir, key, certField, "is not a file"},
		{cert, "/dev/zero", keyField, "is not a file"},
	} {
		_, err := openFiles(c.cert, c.key, new(journal).logger(), at(noon))
		if errs.FieldOf(err) != c.field || !strings.Contains(errs.MessageOf(err), c.wants) {
			t.Errorf("%s, %s: %v", c.cert, c.key, err)
		}
	}
}

func TestACertificateOutsideItsValidityIsServedWithAnError(t *testing.T) {
	t.Parallel()
	cert, key := put(t, t.TempDir(), pair(t, "a.example", noon))
	for name, c := range map[string]struct {
		now   time.Time
		wants string
	}{
		"expired":       {noon.AddDate(0, 0, 31), "expired at 2030-07-01T12:00:00Z"},
		"not yet valid": {noon.AddDate(0, 0, -1), "is valid only from 2030-06-01"},
	} {
		var log journal
		f, err := openFiles(cert, key, log.logger(), at(c.now))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := log.take(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, c.wants) || serves(t, f) != "a.example" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAKeyThatOthersCanReadIsWarnedOf(t *testing.T) {
	t.Parallel()
	cert, key := put(t, t.TempDir(), pair(t, "a.example", noon))
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		var log journal
		if _, err := openFiles(cert, key, log.logger(), at(noon)); err != nil {
			t.Fatal(err)
		}
		if got := log.take(); strings.Contains(got, "chmod 600 "+key) != warns {
			t.Errorf("%v: %q", mode, got)
		}
	}
}

func TestReplacedFilesAreServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := put(t, dir, pair(t, "a.example", noon))
	var log journal
	f, err := openFiles(cert, key, log.logger(), at(noon))
	if err != nil {
		t.Fatal(err)
	}
	f.look()
	if got := log.take(); serves(t, f) != "a.example" || got != "" {
		t.Errorf("unchanged: %s, %q", serves(t, f), got)
	}
	put(t, dir, pair(t, "b.example", noon))
	f.look()
	if got := log.take(); serves(t, f) != "b.example" || !strings.Contains(got, "uses the new certificate") {
		t.Errorf("%s, %q", serves(t, f), got)
	}
	var until time.Time
	f.expiry(func(host string, u time.Time) {
		if until = u; host != "b.example" {
			t.Errorf("the expiry is that of %s", host)
		}
	})
	if !until.Equal(noon.AddDate(0, 0, 30)) {
		t.Errorf("expires at %v", until)
	}
}

// Kubernetes swaps a link to a directory, certbot links to files, and others swap the directory itself.
func TestSwappedLinksAreFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	swap := func(target, link string) {
		t.Helper()
		if err := os.Symlink(target, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"a.example", "b.example", "c.example"} {
		if err := os.Mkdir(filepath.Join(dir, host), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, host), pair(t, host, noon))
	}
	data := filepath.Join(dir, "..data")
	swap("a.example", data)
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	swap("..data/cert.pem", cert)
	swap("..data/key.pem", key)
	f, err := openFiles(cert, key, new(journal).logger(), at(noon))
	if err != nil {
		t.Fatal(err)
	}
	swap("b.example", data)
	if f.look(); serves(t, f) != "b.example" {
		t.Errorf("after the swap of the directory: %s", serves(t, f))
	}
	swap("c.example/cert.pem", cert)
	if f.look(); serves(t, f) != "b.example" {
		t.Errorf("after the swap of one of two files: %s", serves(t, f))
	}
	swap("c.example/key.pem", key)
	if f.look(); serves(t, f) != "c.example" {
		t.Errorf("after the swap of both files: %s", serves(t, f))
	}
}

func TestABrokenNewPairIsRefusedAndTheOldOneStays(t *testing.T) {
	t.Parallel()
	old := pair(t, "a.example", noon)
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		wants  string
	}{
		"missing key": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "key.pem")); err != nil {
				t.Fatal(err)
			}
		}, "does not exist"},
		"broken PEM": {func(t *testing.T, dir string) {
			put(t, dir, pki.Pair{Cert: []byte("-----BEGIN CERTIFICATE-----\nMIIB"), Key: old.Key})
		}, "has no certificate in PEM"},
		"key of another certificate": {func(t *testing.T, dir string) {
			put(t, dir, pki.Pair{Cert: pair(t, "b.example", noon).Cert, Key: old.Key})
		}, "does not belong to the certificate"},
		"expired":       {func(t *testing.T, dir string) { put(t, dir, pair(t, "b.example", noon.AddDate(0, 0, -40))) }, "expired at"},
		"not yet valid": {func(t *testing.T, dir string) { put(t, dir, pair(t, "b.example", noon.AddDate(0, 0, 1))) }, "is valid only from"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cert, key := put(t, dir, old)
			var log journal
			f, err := openFiles(cert, key, log.logger(), at(noon))
			if err != nil {
				t.Fatal(err)
			}
			c.damage(t, dir)
			f.look()
			if got := log.take(); got != "" {
				t.Errorf("logged while the files may be half written: %s", got)
			}
			f.look()
			if got := log.take(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, c.wants) || !strings.Contains(got, "the old one stays") {
				t.Errorf("logged: %s", got)
			}
			if f.look(); log.take() != "" {
				t.Error("the same problem is logged again")
			}
			if got := serves(t, f); got != "a.example" {
				t.Errorf("serves %s", got)
			}
			put(t, dir, pair(t, "c.example", noon))
			if f.look(); serves(t, f) != "c.example" {
				t.Errorf("after the repair: %s", serves(t, f))
			}
		})
	}
}

func TestANewCertificateIsServedOnceItIsValid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := put(t, dir, pair(t, "a.example", noon))
	f, err := openFiles(cert, key, new(journal).logger(), at(noon))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, pair(t, "b.example", noon.AddDate(0, 0, 1)))
	f.look()
	f.now = at(noon.AddDate(0, 0, 2))
	if f.look(); serves(t, f) != "b.example" {
		t.Errorf("serves %s", serves(t, f))
	}
}
