package stack

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// dataDir is the directory that holds all of standalone's data.
//
//	DIR/etcd/             the store
//	DIR/etcd-access/      the store's socket, and certificates for -etcd-listen
//	DIR/templates/        the operator's templates, <group>/<name>/
//	DIR/blobs/            templatesvc's content-addressed files
//	DIR/node/             the agent: instance directories, logs, journal, cache
//	DIR/cluster-secret    the secret with which the services authenticate to each other
//	DIR/seal-key          the key that wraps the keys which seal secrets
//	DIR/admin-password    the generated password of the first user
//	DIR/ready.json        exists while everything is ready
//	DIR/lock              locked while a standalone runs here
type dataDir struct {
	path string
	lock *os.File
}

func (d dataDir) join(name string) string { return filepath.Join(d.path, name) }

// openDataDir creates the directory, checks that it is writable and locks it.
func openDataDir(path string) (*dataDir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, errs.WrapAs(errs.Invalid, "stack.openDataDir", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, dirError(abs, err)
	}
	lock, err := os.OpenFile(filepath.Join(abs, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, dirError(abs, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := lock.Read(holder)
		_ = lock.Close()
		return nil, errs.New(errs.Invalid, "the data directory %s is in use by another standalone (pid %s): stop it, or choose another with -data", abs, strings.TrimSpace(string(holder[:n])))
	}
	d := &dataDir{path: abs, lock: lock}
	if err := d.claim(); err != nil {
		d.close()
		return nil, dirError(abs, err)
	}
	return d, nil
}

// claim writes our PID into the lock file and deletes what an earlier run left.
func (d *dataDir) claim() error {
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	if _, err := d.lock.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0); err != nil {
		return err
	}
	if err := os.Remove(d.join(readyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.closeTemplates()
}

// closeTemplates creates the directory of templates and makes it unreadable for other users
// of the host, such as those that run instances.
func (d *dataDir) closeTemplates() error {
	dir := d.join("templates")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode()&0o007 == 0 {
		return err
	}
	if err := os.Chmod(dir, fi.Mode()&^0o007); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil // it belongs to another user, who may close it
}

func (d *dataDir) close() { _ = d.lock.Close() }

func dirError(path string, err error) error {
	return &errs.Error{Op: "stack.openDataDir", Kind: errs.Invalid, Err: err, Message: fmt.Sprintf(
		"the data directory %s cannot be written: %v; make it writable, or choose another with -data", path, rootCause(err))}
}

// rootCause returns the operating system's error without operation and path.
func rootCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

const (
	secretFile = "cluster-secret"
	sealFile   = "seal-key"
)

// secret reads a secret, or generates one at the first start.
func (d *dataDir) secret(name string) (string, error) {
	path := d.join(name)
	b, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(b))) >= 32 {
		return strings.TrimSpace(string(b)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", dirError(d.path, err)
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	secret := hex.EncodeToString(raw)
	return secret, writeFile(path, []byte(secret+"\n"), 0o600)
}

// checkSealKey returns an error unless the sealing key belongs to the cluster.
func (d *dataDir) checkSealKey(ctx context.Context, c *store.Client, key string) error {
	ring, err := seal.NewRing("", key, func(ctx context.Context) (account.Keyring, error) { return store.Get(ctx, c, keys.Keyring()) })
	if err == nil {
		_, err = ring.Load(ctx)
	}
	if errs.FieldOf(err) == seal.Field {
		return errs.New(errs.Invalid, "the file %s does not hold the sealing key of the cluster in %s: bring back the file that belongs to it", d.join(sealFile), d.join("etcd"))
	}
	return errs.Wrap("stack.checkSealKey", err)
}

const readyFile = "ready.json"

// Ready is the content of ready.json, which tells scripts about a running standalone. Paths
// are absolute.
type Ready struct {
	API string `json:"api"`
	// Etcd is the URL of the embedded etcd's Unix socket.
	Etcd string `json:"etcd"`
	// EtcdTLS is the URL of the -etcd-listen listener, and EtcdCertificates the directory
	// with the certificates it requires. Both are empty without that flag.
	EtcdTLS          string `json:"etcdTLS,omitempty"`
	EtcdCertificates string `json:"etcdCertificates,omitempty"`
	User             string `json:"user"`
	PasswordFile     string `json:"passwordFile"`
	PID              int    `json:"pid"`
	// Own is the URL of the listener. It is for this process, which recognises the API with TLS.
	Own string      `json:"-"`
	TLS *tls.Config `json:"-"`
}

func (d *dataDir) writeReady(r Ready) error {
	b, err := json.Marshal(r)
	if err != nil {
		return errs.WrapAs(errs.Internal, "stack.writeReady", err)
	}
	return writeFile(d.join(readyFile), append(b, '\n'), 0o600)
}

// removeReady deletes our ready.json.
func (d *dataDir) removeReady() { _ = os.Remove(d.join(readyFile)) }

// writeFile writes atomically by rename.
func writeFile(path string, b []byte, mode os.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return dirError(filepath.Dir(path), err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return dirError(filepath.Dir(path), err)
	}
	return nil
}
