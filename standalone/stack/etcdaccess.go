package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/pki"
)

const (
	// accessDir is the directory of etcd's socket and certificates in the data directory.
	accessDir  = "etcd-access"
	socketName = "etcd.sock"
	// maxSocketPath is a length in bytes that every system accepts; Linux accepts 107.
	maxSocketPath = 100
	// authorityYears and leafYears are the validity of certificates. The authority is
	// replaced when a leaf would outlive it.
	authorityYears, leafYears = 10, 1
)

// The files of the optional listener, in PEM.
const (
	authorityFile = "ca"
	serverFile    = "server"
	clientFile    = "client"
)

// privateDir creates a directory that only this user can enter.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// socketDir returns the directory for etcd's socket. It is in the data directory. If the
// socket's path would be too long, it is in the temporary directory, under a name derived
// from the data directory.
func socketDir(dataDir string) (string, error) {
	dir := filepath.Join(dataDir, accessDir)
	if err := privateDir(dir); err != nil {
		return "", dirError(dataDir, err)
	}
	if len(filepath.Join(dir, socketName)) <= maxSocketPath {
		return dir, nil
	}
	sum := sha256.Sum256([]byte(dataDir))
	dir = filepath.Join(os.TempDir(), "orrery-"+hex.EncodeToString(sum[:8]))
	if path := filepath.Join(dir, socketName); len(path) > maxSocketPath {
		return "", errs.New(errs.Invalid, "the path %s of the embedded etcd's socket is longer than %d bytes: set TMPDIR to a directory with a shorter path", path, maxSocketPath)
	}
	return dir, ownTempDir(dir)
}

// ownTempDir creates a directory in the shared temporary directory and checks that this
// user owns it.
func ownTempDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return tempDirError(dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return tempDirError(dir, err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return tempDirError(dir, errs.New(errs.Invalid, "it exists and is not a directory of this user"))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return tempDirError(dir, err)
	}
	return nil
}

func tempDirError(dir string, err error) error {
	return &errs.Error{Op: "stack.socketDir", Kind: errs.Invalid, Err: err, Message: fmt.Sprintf(
		"the directory %s for the embedded etcd's socket cannot be used: %v; remove it, or set TMPDIR to another directory", dir, rootCause(err))}
}

// demandCertificates makes etcd's TCP listener require client certificates. It writes the
// files for the listener and its clients into dir. It keeps the authority, so that client
// certificates of earlier starts stay valid.
func demandCertificates(cfg *embed.Config, dir string, listen url.URL, now time.Time) error {
	hosts, err := certificateHosts(listen.Hostname())
	if err != nil {
		return err
	}
	until := now.AddDate(leafYears, 0, 0)
	authority, err := keptAuthority(dir, now, until)
	if err != nil {
		return err
	}
	for _, leaf := range []struct {
		file string
		pki.Request
	}{
		{serverFile, pki.Request{Name: "orrery standalone etcd", Hosts: hosts, Server: true, Now: now, Until: until}},
		{clientFile, pki.Request{Name: "orrery standalone operator", Client: true, Now: now, Until: until}},
	} {
		pair, err := authority.Issue(leaf.Request)
		if err != nil {
			return errs.Wrap("stack.demandCertificates", err)
		}
		if err := writePair(dir, leaf.file, pair); err != nil {
			return err
		}
	}
	tls := &cfg.ClientTLSInfo
	tls.CertFile, tls.KeyFile = certFile(dir, serverFile), keyFile(dir, serverFile)
	tls.TrustedCAFile, tls.ClientCertAuth = certFile(dir, authorityFile), true
	return nil
}

// keptAuthority returns the authority of an earlier start if it is valid until the given
// time, or else a new one.
func keptAuthority(dir string, now, until time.Time) (*pki.Authority, error) {
	cert, certErr := os.ReadFile(certFile(dir, authorityFile))
	key, keyErr := os.ReadFile(keyFile(dir, authorityFile))
	if certErr == nil && keyErr == nil {
		if kept, err := pki.LoadAuthority(pki.Pair{Cert: cert, Key: key}); err == nil && kept.Until().After(until) {
			return kept, nil
		}
	}
	fresh, err := pki.NewAuthority("orrery standalone", now, now.AddDate(authorityYears, 0, 0))
	if err != nil {
		return nil, errs.Wrap("stack.keptAuthority", err)
	}
	return fresh, writePair(dir, authorityFile, fresh.Pair())
}

// certificateHosts returns the names and addresses for a listener's server certificate: all
// of this host's when it listens on all addresses.
func certificateHosts(host string) ([]string, error) {
	ip := net.ParseIP(host)
	if host != "" && (ip == nil || !ip.IsUnspecified()) {
		return []string{host, "localhost"}, nil
	}
	hosts := []string{"localhost"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "stack.certificateHosts", err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok {
			hosts = append(hosts, network.IP.String())
		}
	}
	return hosts, nil
}

func certFile(dir, name string) string { return filepath.Join(dir, name+".pem") }
func keyFile(dir, name string) string  { return filepath.Join(dir, name+"-key.pem") }

func writePair(dir, name string, p pki.Pair) error {
	if err := writeFile(keyFile(dir, name), p.Key, 0o600); err != nil {
		return err
	}
	return writeFile(certFile(dir, name), p.Cert, 0o600)
}

// EtcdctlFlags returns the flags, quoted for a shell, with which etcdctl reaches the
// -etcd-listen listener.
func (r Ready) EtcdctlFlags() string {
	q := compose.ShellQuote
	return fmt.Sprintf("--endpoints=%s --cacert=%s --cert=%s --key=%s", q(r.EtcdTLS),
		q(certFile(r.EtcdCertificates, authorityFile)), q(certFile(r.EtcdCertificates, clientFile)), q(keyFile(r.EtcdCertificates, clientFile)))
}
