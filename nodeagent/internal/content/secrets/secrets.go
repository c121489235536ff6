// Package secrets resolves references to secrets on a node: to secrets in etcd, to files, and
// to the agent's environment.
//
// Invariants:
//   - Plain values are only in memory. Values on the disk are sealed, as they are in etcd.
//   - Files are read only below one directory, whatever a path or a symlink says, and
//     environment variables only with one prefix.
//   - No error and no log line contains a value. They name variables and references.
//   - If etcd is unavailable, an instance that was started before can still start, because the
//     secrets it read are stored, sealed.
//   - The values of each build of a directory are stored, sealed. They are used during its runs,
//     and to mask the output.
package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
)

const (
	// storeTimeout is how long etcd may take before the stored secrets are used.
	storeTimeout = 2 * time.Second
	// maxValue is the maximum size of a value, in bytes.
	maxValue = content.MaxSecretBytes
)

// Config configures a Resolver. Read, Secret and StateDir are required.
type Config struct {
	// Read reads a secret from etcd. It returns NotFound if it does not exist.
	Read func(ctx context.Context, name string) (content.Secret, error)
	// Secret is the cluster secret.
	Secret string
	// StateDir is the directory for sealed values, one file per instance.
	StateDir string
	// Dir is the directory of file references; "" disables them.
	Dir string
	// EnvPrefix is the required prefix of env references; "" disables them.
	EnvPrefix string
	// Env looks up a variable of the agent's environment.
	Env func(name string) (string, bool)
	// Log receives failures to store sealed values.
	Log *slog.Logger
}

// Resolver resolves references. It is safe for concurrent use, but only by one caller per
// instance.
type Resolver struct {
	cfg Config
	box seal.Box
	// mu guards the files in StateDir.
	mu sync.Mutex
}

// New returns a resolver. It reads nothing yet.
func New(cfg Config) (*Resolver, error) {
	box, err := seal.NewBox(cfg.Secret, content.SecretsKind)
	return &Resolver{cfg: cfg, box: box}, errs.Wrap("secrets.New", err)
}

// Values returns the values of an instance's variables by their references. Errors name the
// variable and the reference: NotFound if it does not exist, Denied if this node may not resolve
// it, Invalid if it cannot be used, Unavailable if etcd is unavailable and nothing is stored.
func (r *Resolver) Values(ctx context.Context, id fleet.InstanceID, g fleet.GroupName, refs map[string]string) (map[string]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	s := &resolution{r: r, id: id, group: g, stored: map[string]content.Secret{}}
	out := map[string]string{}
	for _, variable := range slices.Sorted(maps.Keys(refs)) {
		ref, err := content.ParseSecretRef(refs[variable])
		if err != nil { // it may be a plain value, from before the variable was declared secret
			return nil, errs.New(errs.Invalid, "%s is secret, but its value %s; set it again", variable, "is not a reference")
		}
		value, err := s.follow(ctx, variable, ref)
		if err == nil && (!utf8.ValidString(value) || strings.ContainsRune(value, 0)) {
			err = errs.New(errs.Invalid, "it is not UTF-8 text without NUL bytes")
		}
		if err != nil {
			return nil, &errs.Error{Op: "secrets.Values", Kind: errs.KindOf(err), Err: err, Message: variable + " is " + ref.String() + ": " + errs.MessageOf(err)}
		}
		out[variable] = value
	}
	if err := s.save(); err != nil {
		r.cfg.Log.Error("sealed secrets could not be stored: the instance cannot be started again while etcd is unavailable", "instance", string(id), "error", err)
	}
	return out, nil
}

// Forget removes the stored state of an instance.
func (r *Resolver) Forget(id fleet.InstanceID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := os.Remove(r.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.WrapAs(errs.Unavailable, "secrets.Forget", err)
}

func (r *Resolver) path(id fleet.InstanceID) string {
	return filepath.Join(r.cfg.StateDir, string(id)+suffix)
}

// resolution resolves the references of one instance.
type resolution struct {
	r     *Resolver
	id    fleet.InstanceID
	group fleet.GroupName
	// stored are the secrets read so far, fromCache those on the disk; nil before they are read.
	stored, fromCache map[string]content.Secret
}

func (s *resolution) follow(ctx context.Context, variable string, ref content.SecretRef) (string, error) {
	switch ref.Kind {
	case content.SecretStored:
		return s.fromStore(ctx, ref)
	case content.SecretFile:
		return s.r.file(ref.Of)
	case content.SecretEnv:
		return s.r.env(ref.Of)
	case content.SecretSealed:
		return s.r.sealed(s.group, variable, ref.Of)
	}
	return "", errs.New(errs.Invalid, "this agent does not know such references")
}

// fromStore returns a value of a secret in etcd.
func (s *resolution) fromStore(ctx context.Context, ref content.SecretRef) (string, error) {
	record, err := s.record(ctx, ref.Of)
	if err != nil {
		return "", err
	}
	plain, err := s.r.box.About(compose.AboutStored(ref.Of)).Open(record.Sealed)
	if err != nil {
		return "", errs.New(errs.Invalid, "it cannot be decrypted: give the agent the gateway's cluster secret (cluster.secret), or store the secret again")
	}
	var values map[string]string
	if err := json.Unmarshal(plain, &values); err != nil {
		return "", errs.New(errs.Invalid, "it is corrupt: store it again")
	}
	value, ok := values[ref.Key]
	switch {
	case ok:
		return value, nil
	case ref.Key == "":
		return "", errs.New(errs.NotFound, "the secret has values only by key: refer to one as %s#KEY", ref)
	}
	return "", errs.New(errs.NotFound, "the secret has no such key")
}

// record returns a secret from etcd, or the one on the disk while etcd is unavailable.
func (s *resolution) record(ctx context.Context, name string) (content.Secret, error) {
	if record, ok := s.stored[name]; ok {
		return record, nil
	}
	asked, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	record, err := s.r.cfg.Read(asked, name)
	switch {
	case ctx.Err() != nil:
		return record, errs.Wrap("secrets.record", ctx.Err())
	case errs.Is(err, errs.NotFound):
		return record, errs.New(errs.NotFound, "no such secret: store it, and start the instance again")
	case err != nil:
		kept, ok := s.cached()[name]
		if !ok {
			return record, &errs.Error{Op: "secrets.record", Kind: errs.Unavailable, Err: err, Message: "etcd does not answer, and this node has no copy of the secret"}
		}
		record = kept
	}
	s.stored[name] = record
	return record, nil
}

// cached returns the secrets on the disk.
func (s *resolution) cached() map[string]content.Secret {
	if s.fromCache == nil {
		s.r.mu.Lock()
		f, _ := s.r.read(s.id) // an unreadable file counts as empty
		s.r.mu.Unlock()
		s.fromCache = f.Records
		if s.fromCache == nil {
			s.fromCache = map[string]content.Secret{}
		}
	}
	return s.fromCache
}

// save stores the secrets read from etcd, sealed, if they changed.
func (s *resolution) save() error {
	same := func(a, b content.Secret) bool { return bytes.Equal(a.Sealed, b.Sealed) }
	if len(s.stored) == 0 || maps.EqualFunc(s.stored, s.cached(), same) {
		return nil
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	f, _ := s.r.read(s.id)
	f.Records = s.stored
	return s.r.write(s.id, f)
}

// sealed returns a value that is sealed in the reference itself.
func (r *Resolver) sealed(g fleet.GroupName, variable, of string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(of)
	if err == nil {
		for _, about := range []string{compose.AboutGroup(g, variable), compose.AboutTemplate(variable)} {
			if plain, err := r.box.About(about).Open(b); err == nil {
				return string(plain), nil
			}
		}
	}
	return "", errs.New(errs.Invalid, "it cannot be decrypted: give the agent the gateway's cluster secret (cluster.secret), or set the value again")
}

// file returns the content of a file below Dir, without a final newline.
func (r *Resolver) file(name string) (string, error) {
	if r.cfg.Dir == "" {
		return "", errs.New(errs.Denied, "this node has no directory of secrets: set the agent's secrets.dir")
	}
	root, err := os.OpenRoot(r.cfg.Dir)
	if err != nil {
		return "", errs.New(errs.NotFound, "the node's directory of secrets cannot be opened: check the agent's secrets.dir")
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errs.New(errs.NotFound, "no such file below the node's secrets.dir")
	case err != nil:
		return "", errs.New(errs.Denied, "the file cannot be opened: it must be readable by the agent's user and must not lead out of the node's secrets.dir")
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", errs.New(errs.Invalid, "it is not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	switch {
	case err != nil:
		return "", errs.New(errs.Unavailable, "the file cannot be read now")
	case len(b) > maxValue:
		return "", errs.New(errs.Invalid, "the file is larger than %d KiB", maxValue>>10)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// env returns a variable of the agent's environment.
func (r *Resolver) env(name string) (string, error) {
	if r.cfg.EnvPrefix == "" || r.cfg.Env == nil || !strings.HasPrefix(name, r.cfg.EnvPrefix) {
		return "", errs.New(errs.Denied, "only variables whose names begin with the agent's secrets.env-prefix may be referred to")
	}
	value, ok := r.cfg.Env(name)
	if !ok {
		return "", errs.New(errs.NotFound, "the agent's environment has no such variable")
	}
	if len(value) > maxValue {
		return "", errs.New(errs.Invalid, "it is larger than %d KiB", maxValue>>10)
	}
	return value, nil
}
