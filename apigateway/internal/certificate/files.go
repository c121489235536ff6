package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// lookEvery is how often the files are read. Reading finds every change: also the swap of a link in
	// any directory of the path, and changes on file systems without notifications.
	lookEvery = 5 * time.Second
	// maxFile limits the size of a file in bytes.
	maxFile = 1 << 20
)

// The fields of the files.
const (
	certField = "tls.cert"
	keyField  = "tls.key"
)

// content is what the two files have.
type content struct{ cert, key []byte }

func (c content) equal(other content) bool {
	return bytes.Equal(c.cert, other.cert) && bytes.Equal(c.key, other.key)
}

// loaded is a certificate with the content it was read from.
type loaded struct {
	content
	pair *tls.Certificate
}

// files is a certificate in two files. It follows changes of the files.
type files struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time
	served    atomic.Pointer[loaded]

	// seen is the content at the last look, and problem the last message about a content that cannot be
	// served. Only openFiles and then run use them.
	seen    content
	problem string
}

// openFiles returns the certificate in two files. A certificate that is not valid at this time is served,
// because a wrong clock or a late renewal must not keep the gateway from starting.
func openFiles(cert, key string, log *slog.Logger, now func() time.Time) (*files, error) {
	f := &files{cert: cert, key: key, log: log, now: now}
	l, err := load(cert, key)
	if err != nil {
		return nil, err
	}
	if err := f.inTime(l.pair.Leaf); err != nil {
		f.log.Error("clients refuse the certificate of the API", "error", errs.MessageOf(err))
	}
	f.warnOfReaders()
	f.seen = l.content
	f.served.Store(&l)
	return f, nil
}

// load reads a certificate. Its content is set if the files can be read.
func load(cert, key string) (l loaded, err error) {
	if l.cert, err = readFile(certField, cert); err != nil {
		return loaded{}, err
	}
	if l.key, err = readFile(keyField, key); err != nil {
		return loaded{}, err
	}
	l.pair, err = parse(cert, key, l.content)
	return l, err
}

// unusable returns Invalid for a file of a setting. The message names the setting, too.
func unusable(field, format string, args ...any) error {
	return errs.Field(field, "%s: %s", field, fmt.Sprintf(format, args...))
}

func readFile(field, path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, unusable(field, "%s is not a file", path)
	case err == nil && info.Size() > maxFile:
		return nil, unusable(field, "%s is larger than %d bytes", path, maxFile)
	}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, unusable(field, "the file %s does not exist", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, unusable(field, "the user of this program may not read %s: change its owner, or give the file to a group of that user with mode 0640", path)
	case err != nil:
		var reason syscall.Errno
		if errors.As(err, &reason) {
			err = reason
		}
		return nil, unusable(field, "the file %s cannot be read: %v", path, err)
	}
	return b, nil
}

// parse returns the certificate of a content with its key.
func parse(cert, key string, c content) (*tls.Certificate, error) {
	if p, _ := pem.Decode(c.cert); p == nil || p.Type != "CERTIFICATE" {
		return nil, unusable(certField, "%s has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----", cert)
	}
	switch p, _ := pem.Decode(c.key); {
	case p == nil:
		return nil, unusable(keyField, "%s has no private key in PEM, which begins with -----BEGIN PRIVATE KEY-----", key)
	case strings.Contains(p.Type, "ENCRYPTED") || p.Headers["DEK-Info"] != "":
		return nil, unusable(keyField, "the private key in %s is encrypted: write it without a password, as openssl pkey does", key)
	}
	pair, err := tls.X509KeyPair(c.cert, c.key)
	switch {
	case err == nil:
		return &pair, nil
	case strings.Contains(err.Error(), "does not match"):
		return nil, unusable(keyField, "the private key in %s does not belong to the certificate in %s", key, cert)
	}
	message := strings.TrimPrefix(err.Error(), "tls: ")
	if strings.Contains(message, "private key") || strings.Contains(message, "key input") {
		return nil, unusable(keyField, "%s cannot be used: %s", key, message)
	}
	return nil, unusable(certField, "%s cannot be used: %s", cert, message)
}

// inTime returns Invalid if a certificate is not valid now.
func (f *files) inTime(leaf *x509.Certificate) error {
	switch now := f.now(); {
	case now.After(leaf.NotAfter):
		return unusable(certField, "the certificate in %s expired at %s: renew it", f.cert, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return unusable(certField, "the certificate in %s is valid only from %s: check the clock of this host", f.cert, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// warnOfReaders warns if other users of the host can read the key.
func (f *files) warnOfReaders() {
	if info, err := os.Stat(f.key); err == nil && info.Mode().Perm()&0o077 != 0 {
		f.log.Warn("other users of this host can read the private key of the API", "file", f.key, "mode", fmt.Sprintf("%#o", info.Mode().Perm()), "fix", "chmod 600 "+f.key)
	}
}

// run follows the files until ctx ends.
func (f *files) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.look()
		case <-ctx.Done():
			return
		}
	}
}

// look reads the files and serves a changed certificate. It logs one that cannot be served once, and not
// before the second look with the same content, because programs write the two files one after the other.
func (f *files) look() {
	served := f.served.Load()
	l, err := load(f.cert, f.key)
	settled := l.equal(f.seen)
	f.seen = l.content
	if err == nil && l.equal(served.content) {
		f.problem = ""
		return
	}
	if err == nil {
		err = f.inTime(l.pair.Leaf)
	}
	switch {
	case err == nil:
		f.problem = ""
		f.warnOfReaders()
		f.served.Store(&l)
		f.log.Info("the API uses the new certificate", "hosts", hostsOf(l.pair.Leaf), "until", l.pair.Leaf.NotAfter.UTC())
	case settled && f.problem != errs.MessageOf(err):
		f.problem = errs.MessageOf(err)
		f.log.Error("the API does not use the new certificate, the old one stays", "error", f.problem, "oldUntil", served.pair.Leaf.NotAfter.UTC())
	}
}

func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.served.Load().pair, nil }

func (f *files) protocols() []string { return nil }

func (f *files) expiry(tell func(host string, until time.Time)) {
	leaf := f.served.Load().pair.Leaf
	host := leaf.Subject.CommonName
	if all := hostsOf(leaf); len(all) > 0 {
		host = all[0]
	}
	tell(host, leaf.NotAfter)
}

// hostsOf returns the names of a certificate, without wildcards, and then its addresses.
func hostsOf(leaf *x509.Certificate) (out []string) {
	for _, name := range leaf.DNSNames {
		if !strings.HasPrefix(name, "*") {
			out = append(out, name)
		}
	}
	for _, ip := range leaf.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}
