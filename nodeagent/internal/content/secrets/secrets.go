// Package secrets resolves references to secrets on a node: to secrets in etcd, to files, and
// to the agent's environment.
//
// Invariants:
//   - Plain values are only in memory. Values on the disk are sealed with a key of the node.
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
	"crypto/rand"
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

	"github.com/orreryhq/orrery/libs/atomicfile"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/reveal"
	"github.com/orreryhq/orrery/libs/seal"
)

const (
	// storeTimeout is how long etcd may take before the stored secrets are used.
	storeTimeout = 2 * time.Second
	// maxValue is the maximum size of a value, in bytes.
	maxValue = content.MaxSecretBytes
)

// Config configures a Resolver. StateDir and one of Secret and Ask are required.
type Config struct {
	// Read reads a secret from etcd. It returns NotFound if it does not exist.
	Read func(ctx context.Context, name string) (content.Secret, error)
	// Labels reads the labels of a group from etcd, for secrets that only some groups may use.
	Labels func(ctx context.Context, g fleet.GroupName) (map[string]string, error)
	// Secret is the cluster secret. Without it, a key of this node seals what is stored.
	Secret string
	// Ring opens what the gateway sealed; see NewRing. Nil means Secret alone.
	Ring *seal.Ring
	// Ask returns the values of an instance's variables from a gateway, for an agent without the cluster
	// secret. refs are references to stored secrets, and sealed values. Errors name the variable.
	Ask func(ctx context.Context, id fleet.InstanceID, refs map[string]string) (map[string]string, error)
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
	// box seals what is stored.
	box    seal.Box
	opener reveal.Opener
	// mu guards the files in StateDir.
	mu sync.Mutex
}

// New returns a resolver. It reads no secrets yet. Unavailable if the node's key cannot be read or made.
func New(cfg Config) (*Resolver, error) {
	if cfg.Ring == nil {
		cfg.Ring = seal.Only(cfg.Secret)
	}
	key := cfg.Secret
	if key == "" {
		var err error
		if key, err = ownKey(cfg.StateDir); err != nil {
			return nil, errs.WrapAs(errs.Unavailable, "secrets.New", err)
		}
	}
	return &Resolver{cfg: cfg, box: seal.NewBox(key, content.SecretsKind), opener: reveal.NewOpener(cfg.Ring)}, nil
}

// keyFile has the node's key. It is in the directory of the files that it seals, so it protects copies of
// single files only.
const keyFile = "key"

// ownKey returns the node's key. It makes one if there is none.
func ownKey(dir string) (string, error) {
	path := filepath.Join(dir, keyFile)
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return string(b), err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	key := rand.Text()
	return key, atomicfile.Write(path, []byte(key))
}

// Values returns the values of an instance's variables by their references. Errors name the
// variable and the reference: NotFound if it does not exist, Denied if this node may not resolve
// it, Invalid if it cannot be used, Unavailable if etcd is unavailable and nothing is stored.
func (r *Resolver) Values(ctx context.Context, id fleet.InstanceID, g fleet.GroupName, refs map[string]string) (map[string]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	s := &resolution{r: r, id: id, group: g, stored: map[string]content.Secret{}}
	out, err := s.values(ctx, refs)
	if errs.Is(err, errs.Denied) {
		err = errors.Join(err, s.dropCopies())
	}
	return out, err
}

func (s *resolution) values(ctx context.Context, refs map[string]string) (map[string]string, error) {
	if err := s.ask(ctx, refs); err != nil {
		return nil, err
	}
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
	if err := errors.Join(s.save(), s.saveAsked()); err != nil {
		s.r.cfg.Log.Error("sealed secrets could not be stored: the instance cannot be started again while etcd is unavailable", "instance", string(s.id), "error", err)
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
	// asked is what a gateway has answered. It has all stored and sealed references, or none.
	asked asked
}

func (s *resolution) follow(ctx context.Context, variable string, ref content.SecretRef) (string, error) {
	if value, ok := s.asked.Values[variable]; ok {
		return value, nil
	}
	switch ref.Kind {
	case content.SecretStored:
		return s.fromStore(ctx, ref)
	case content.SecretFile:
		return s.r.file(ref.Of)
	case content.SecretEnv:
		return s.r.env(ref.Of)
	case content.SecretSealed:
		return s.r.opener.Sealed(s.group, variable, ref)
	}
	return "", errs.New(errs.Invalid, "this agent does not know such references")
}

// fromStore returns a value of a secret in etcd.
func (s *resolution) fromStore(ctx context.Context, ref content.SecretRef) (string, error) {
	record, err := s.record(ctx, ref.Of)
	if err != nil {
		return "", err
	}
	value, err := s.r.opener.Stored(record, ref)
	if err == nil && seal.VersionOf(record.Sealed) != "" {
		s.own(ref.Of, record)
	}
	return value, err
}

// own seals a record that is stored here with the key of this node: the version of the key that it names may
// be retired while etcd is away.
func (s *resolution) own(name string, record content.Secret) {
	about := compose.AboutStored(name)
	plain, err := s.r.cfg.Ring.Records(content.SecretsKind).About(about).Open(record.Sealed)
	if err != nil {
		return
	}
	box := s.r.box.About(about)
	if before, err := box.Open(s.cached()[name].Sealed); err == nil && bytes.Equal(before, plain) {
		record.Sealed = s.cached()[name].Sealed
	} else {
		record.Sealed = box.Seal(plain)
	}
	s.stored[name] = record
}

// record returns a secret from etcd, or the one on the disk while etcd is unavailable.
func (s *resolution) record(ctx context.Context, name string) (content.Secret, error) {
	if record, ok := s.stored[name]; ok {
		return record, nil
	}
	asked, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	record, err := s.r.cfg.Read(asked, name)
	if err == nil && !record.Selector.Empty() {
		var labels map[string]string
		if labels, err = s.r.cfg.Labels(asked, s.group); err != nil {
			return record, errs.WrapAs(errs.Unavailable, "secrets.labels", err)
		}
		err = record.ForGroup(labels)
	}
	switch {
	case ctx.Err() != nil:
		return record, errs.Wrap("secrets.record", ctx.Err())
	case errs.Is(err, errs.Denied):
		return record, err
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

// dropCopies removes what is stored for a time without etcd, because the instance may no longer get it.
func (s *resolution) dropCopies() error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	f, err := s.r.read(s.id)
	if err != nil || f.Records == nil && f.Asked == nil {
		return nil // nothing is stored
	}
	f.Records, f.Asked = nil, nil
	return s.r.write(s.id, f)
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
