// Package secrets follows references to secrets on the node: to those stored in etcd, to
// files and to the agent's environment.
//
// Invariants:
//   - A value is in memory only. What is kept on the disk is sealed as it is in etcd.
//   - Files are read below one directory, whatever a path or a link says; of the
//     environment only names with one prefix are.
//   - No error, and nothing that is logged, has a value in it: they name variables and
//     references.
//   - A store that is away is no reason to fail a start that was possible before: what was
//     read of it then is kept, sealed.
//   - The values an instance's directory was built with are kept, sealed, whatever they were
//     followed from: they are those of its runs, and are told from what these print.
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
	"github.com/orreryhq/orrery/libs/seal"
)

const (
	// storePatience is how long the store is asked before what is kept is used.
	storePatience = 2 * time.Second
	// maxValue bounds one value, in bytes.
	maxValue = fleet.MaxSecretBytes
)

// Config is what following references needs. Read, Secret and Keep are required.
type Config struct {
	// Read reads a stored secret. NotFound when there is none.
	Read func(ctx context.Context, name string) (fleet.Secret, error)
	// Secret is the cluster secret.
	Secret string
	// Keep is the directory of what is kept sealed, one file per instance.
	Keep string
	// Dir is the directory of file references; "": there are none on this node.
	Dir string
	// EnvPrefix is what names of env references begin with; "": there are none on this node.
	EnvPrefix string
	// Env looks up a variable of the agent's environment.
	Env func(name string) (string, bool)
	// Log is told what could not be kept.
	Log *slog.Logger
}

// Resolver follows references. It is safe for concurrent use, for one instance by one
// caller at a time.
type Resolver struct {
	cfg Config
	box seal.Box
	// mu is held while what is kept is read or written.
	mu sync.Mutex
}

// New makes a resolver. Nothing is read yet.
func New(cfg Config) (*Resolver, error) {
	box, err := seal.NewBox(cfg.Secret, fleet.SecretsKind)
	return &Resolver{cfg: cfg, box: box}, errs.Wrap("secrets.New", err)
}

// Values are the values of an instance's variables by their references. Errors name the
// variable and the reference: NotFound for what is not there, Denied for what this node may
// not follow, Invalid for what cannot be used, Unavailable while the store is away and
// nothing was kept.
func (r *Resolver) Values(ctx context.Context, id fleet.InstanceID, g fleet.GroupName, refs map[string]string) (map[string]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	s := &reading{r: r, id: id, group: g, stored: map[string]fleet.Secret{}}
	out := map[string]string{}
	for _, variable := range slices.Sorted(maps.Keys(refs)) {
		ref, err := fleet.ParseSecretRef(refs[variable])
		if err != nil { // it may be a value in clear, from before the variable was a secret
			return nil, errs.New(errs.Invalid, "%s is a secret and its value %s; give it anew", variable, "is no reference")
		}
		value, err := s.follow(ctx, variable, ref)
		if err == nil && (!utf8.ValidString(value) || strings.ContainsRune(value, 0)) {
			err = errs.New(errs.Invalid, "it is no text without NUL")
		}
		if err != nil {
			return nil, &errs.Error{Op: "secrets.Values", Kind: errs.KindOf(err), Err: err, Message: variable + " is " + ref.String() + ": " + errs.MessageOf(err)}
		}
		out[variable] = value
	}
	if err := s.keep(); err != nil {
		r.cfg.Log.Error("sealed secrets are not kept: while etcd is away, the instance cannot be started again", "instance", string(id), "error", err)
	}
	return out, nil
}

// Forget removes what is kept for an instance.
func (r *Resolver) Forget(id fleet.InstanceID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := os.Remove(r.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.As(errs.Unavailable, "secrets.Forget", err)
}

func (r *Resolver) path(id fleet.InstanceID) string {
	return filepath.Join(r.cfg.Keep, string(id)+suffix)
}

// reading is one following of an instance's references.
type reading struct {
	r     *Resolver
	id    fleet.InstanceID
	group fleet.GroupName
	// stored are the secrets read so far, kept those of the time before; nil before they are read.
	stored, kept map[string]fleet.Secret
}

func (s *reading) follow(ctx context.Context, variable string, ref fleet.SecretRef) (string, error) {
	switch ref.Kind {
	case fleet.SecretStored:
		return s.fromStore(ctx, ref)
	case fleet.SecretFile:
		return s.r.file(ref.Of)
	case fleet.SecretEnv:
		return s.r.env(ref.Of)
	case fleet.SecretSealed:
		return s.r.sealed(s.group, variable, ref.Of)
	}
	return "", errs.New(errs.Invalid, "this agent does not know such references")
}

// fromStore is a value of a stored secret.
func (s *reading) fromStore(ctx context.Context, ref fleet.SecretRef) (string, error) {
	record, err := s.record(ctx, ref.Of)
	if err != nil {
		return "", err
	}
	plain, err := s.r.box.About(fleet.AboutStored(ref.Of)).Open(record.Sealed)
	if err != nil {
		return "", errs.New(errs.Invalid, "it does not open: give the agent the cluster secret that the gateway has (cluster.secret), or store the secret anew")
	}
	var values map[string]string
	if err := json.Unmarshal(plain, &values); err != nil {
		return "", errs.New(errs.Invalid, "it is damaged: store it anew")
	}
	value, ok := values[ref.Key]
	switch {
	case ok:
		return value, nil
	case ref.Key == "":
		return "", errs.New(errs.NotFound, "the secret has values by key only: refer to one as %s#KEY", ref)
	}
	return "", errs.New(errs.NotFound, "the secret has no value of that key")
}

// record reads a stored secret, once; while the store is away it is what was kept.
func (s *reading) record(ctx context.Context, name string) (fleet.Secret, error) {
	if record, ok := s.stored[name]; ok {
		return record, nil
	}
	asked, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	record, err := s.r.cfg.Read(asked, name)
	switch {
	case ctx.Err() != nil:
		return record, errs.Wrap("secrets.record", ctx.Err())
	case errs.Is(err, errs.NotFound):
		return record, errs.New(errs.NotFound, "there is no such secret: store it, and start again")
	case err != nil:
		kept, ok := s.before()[name]
		if !ok {
			return record, &errs.Error{Op: "secrets.record", Kind: errs.Unavailable, Err: err, Message: "etcd does not answer, and it was not read before"}
		}
		record = kept
	}
	s.stored[name] = record
	return record, nil
}

// before is what was kept of the store.
func (s *reading) before() map[string]fleet.Secret {
	if s.kept == nil {
		s.r.mu.Lock()
		f, _ := s.r.read(s.id) // what cannot be read was not kept
		s.r.mu.Unlock()
		s.kept = f.Records
		if s.kept == nil {
			s.kept = map[string]fleet.Secret{}
		}
	}
	return s.kept
}

// keep keeps what was read of the store, sealed as it is.
func (s *reading) keep() error {
	same := func(a, b fleet.Secret) bool { return bytes.Equal(a.Sealed, b.Sealed) }
	if len(s.stored) == 0 || maps.EqualFunc(s.stored, s.before(), same) {
		return nil
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	f, _ := s.r.read(s.id)
	f.Records = s.stored
	return s.r.write(s.id, f)
}

// sealed is a value that stands sealed where it is referred to.
func (r *Resolver) sealed(g fleet.GroupName, variable, of string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(of)
	if err == nil {
		for _, about := range []string{fleet.AboutGroup(g, variable), fleet.AboutTemplate(variable)} {
			if plain, err := r.box.About(about).Open(b); err == nil {
				return string(plain), nil
			}
		}
	}
	return "", errs.New(errs.Invalid, "it does not open here: give the agent the cluster secret that the gateway has (cluster.secret), or give the value anew")
}

// file is what a file below the directory holds, without a newline at its end.
func (r *Resolver) file(name string) (string, error) {
	if r.cfg.Dir == "" {
		return "", errs.New(errs.Denied, "this node has no directory of secrets: set the agent's secrets.dir")
	}
	root, err := os.OpenRoot(r.cfg.Dir)
	if err != nil {
		return "", errs.New(errs.NotFound, "the node's directory of secrets cannot be opened: look at the agent's secrets.dir")
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errs.New(errs.NotFound, "there is no such file below the node's secrets.dir")
	case err != nil:
		return "", errs.New(errs.Denied, "the file cannot be opened: it must be readable by the agent's user and must not lead out of the node's secrets.dir")
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", errs.New(errs.Invalid, "it is no plain file")
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

// env is a variable of the agent's environment.
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
