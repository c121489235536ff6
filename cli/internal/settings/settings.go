// Package settings stores the servers that the user knows, and their logins.
//
// They are in one file, readable by its owner only, in the user's directory for configuration.
// Tokens are in the keyring of the desktop if it has one, otherwise in the same file.
package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/libs/atomicfile"
	"go.yaml.in/yaml/v4"
)

// Context is a named server with the login of one user.
type Context struct {
	Name string `yaml:"name"`
	// Servers are the base URLs of the gateways of one cluster.
	Servers []string `yaml:"servers"`
	// CA is a file with the authorities that sign the certificates of the servers; empty means those of this machine.
	CA string `yaml:"ca,omitempty"`
	// Username is who logged in.
	Username string `yaml:"username,omitempty"`
	// Group is the default of --group.
	Group string `yaml:"group,omitempty"`
	// Login is absent while the user is logged out, or if the keyring has it.
	Login *Login `yaml:"login,omitempty"`
	// Keyring says that the keyring has the login.
	Keyring bool `yaml:"keyring,omitempty"`
	// Data is the data directory of the standalone on this machine that the context is for; empty if it is for another
	// server.
	Data string `yaml:"data,omitempty"`
}

// Has reports whether a URL is that of one of the servers.
func (c *Context) Has(server string) bool {
	return slices.ContainsFunc(c.Servers, func(s string) bool { return canonical(s) == canonical(server) })
}

// canonical returns a URL in the form in which equal ones are the same text.
func canonical(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	host := strings.ToLower(u.Host)
	switch strings.ToLower(u.Scheme) {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return strings.ToLower(u.Scheme) + "://" + host + strings.TrimRight(u.Path, "/")
}

// Login holds the tokens of a login.
type Login struct {
	Token        string    `yaml:"token" json:"token"`
	RefreshToken string    `yaml:"refreshToken,omitempty" json:"refreshToken,omitempty"`
	ExpiresAt    time.Time `yaml:"expiresAt,omitempty" json:"expiresAt,omitzero"`
}

// File is the content of the settings file.
type File struct {
	Current  string    `yaml:"current,omitempty"`
	Contexts []Context `yaml:"contexts,omitempty"`
}

// Find returns the context of that name, or nil.
func (f *File) Find(name string) *Context {
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Contexts[i]
}

// Names returns the names of the contexts.
func (f *File) Names() []string {
	var names []string
	for _, c := range f.Contexts {
		names = append(names, c.Name)
	}
	return names
}

// With returns the context that has a server, or nil. If several have it, the first name in preferred that is one of
// them counts, otherwise the first context.
func (f *File) With(server string, preferred ...string) *Context {
	for _, name := range preferred {
		if c := f.Find(name); c != nil && c.Has(server) {
			return c
		}
	}
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Has(server) })
	if i < 0 {
		return nil
	}
	return &f.Contexts[i]
}

// Store reads and writes the settings file. Programs that run at the same time do not lose each
// other's changes.
type Store struct {
	// Warn is called with what the user should know about the settings, once for each text. It may be nil.
	Warn func(text string)

	path    string
	keyring Keyring

	mu     sync.Mutex
	warned []string // under mu: the texts so far
}

// New returns the Store of a file. If path is empty there are no settings, and they cannot be changed. keyring may be nil.
func New(path string, keyring Keyring) *Store { return &Store{path: path, keyring: keyring} }

func (s *Store) warn(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Warn == nil || slices.Contains(s.warned, text) {
		return
	}
	s.warned = append(s.warned, text)
	s.Warn(text)
}

// DefaultPath returns the path of the settings file of the user; empty if the user has no directory for it.
func DefaultPath(env func(string) string) string {
	if path := env("ORRERY_CONFIG"); path != "" {
		return path
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "orrery", "config.yaml")
}

// Path returns the path of the file.
func (s *Store) Path() string { return s.path }

// Read returns the settings; empty ones if there is no file. It warns if others can read the tokens in it.
func (s *Store) Read() (*File, error) {
	file, err := s.read()
	if err != nil || !file.hasTokens() || runtime.GOOS == "windows" { // there the mode says nothing about others
		return file, err
	}
	if info, err := os.Stat(s.path); err == nil && info.Mode().Perm()&0o077 != 0 {
		s.warn("others can read the tokens in " + s.path + ": chmod 600 " + s.path)
	}
	return file, nil
}

func (f *File) hasTokens() bool {
	return slices.ContainsFunc(f.Contexts, func(c Context) bool { return c.Login != nil })
}

func (s *Store) read() (*File, error) {
	file := &File{}
	if s.path == "" {
		return file, nil
	}
	content, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err == nil {
		err = decode(content, file)
	}
	if err != nil {
		return nil, exit.Hint(fmt.Errorf("cannot read the settings in %s: %w", s.path, err), "correct the file, or move it away and log in again")
	}
	return file, nil
}

// decode decodes the settings. The error has the place, but no value, which may be a token.
func decode(content []byte, file *File) error {
	err := yaml.Unmarshal(content, file)
	var mistake *yaml.LoadError
	switch {
	case errors.Is(err, io.EOF): // it is empty
		return nil
	case !errors.As(err, &mistake):
		return err
	}
	text := mistake.Message
	if mistake.Stage == yaml.ConstructorStage {
		text = "a value has the wrong type"
	}
	return fmt.Errorf("line %d, column %d: %s", mistake.Mark.Line, mistake.Mark.Column, text)
}

// lockTimeout bounds how long a change waits for that of another program.
const lockTimeout = 20 * time.Second

// Change calls change with the current settings and writes what it left. Other programs wait
// meanwhile. It writes nothing if change fails.
func (s *Store) Change(ctx context.Context, change func(*File) error) error {
	if s.path == "" {
		return errors.New("the directory for settings is not known: set HOME, or set ORRERY_CONFIG to a file")
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for settings: %w", err)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	file, err := s.read() // without a warning: what it writes, only the user can read
	if err != nil {
		return err
	}
	if err := change(file); err != nil {
		return err
	}
	return s.write(file)
}

// lock waits until no other program changes the settings.
func (s *Store) lock(ctx context.Context) (unlock func() error, err error) {
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock := flock.New(s.path + ".lock")
	_, err = lock.TryLockContext(waiting, 20*time.Millisecond)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("another program has locked the settings in %s for more than %s; end it and try again", s.path, lockTimeout)
	case err != nil:
		return nil, fmt.Errorf("cannot lock the settings in %s: %w", s.path, err)
	}
	return lock.Unlock, nil
}

// write replaces the file in one step, so that a reader never sees half of it.
func (s *Store) write(file *File) error {
	content, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.path, content); err != nil {
		return fmt.Errorf("cannot write the settings in %s: %w", s.path, err)
	}
	return nil
}

// SetLogin stores the login of a context, in the keyring if it has one.
func (s *Store) SetLogin(c *Context, login *Login) {
	c.Login, c.Keyring = login, false
	if s.keyring != nil && login != nil && s.keyring.Set(s.key(c), login) == nil {
		c.Login, c.Keyring = nil, true
	}
}

// DropLogin removes the login of a context.
func (s *Store) DropLogin(c *Context) {
	if c.Keyring && s.keyring != nil {
		_ = s.keyring.Delete(s.key(c)) // the tokens were revoked; what stays is of no use
	}
	c.Login, c.Keyring = nil, false
}

// LoginOf returns the login of a context; nil without one.
func (s *Store) LoginOf(c *Context) *Login {
	if !c.Keyring {
		return c.Login
	}
	err := errNoKeyring
	if s.keyring != nil {
		var login *Login
		if login, err = s.keyring.Get(s.key(c)); err == nil {
			return login
		}
	}
	s.warn(fmt.Sprintf("the login of context %s is in the keyring of the desktop, which cannot be read here: %v; a new login here is stored in %s", c.Name, err, s.path))
	return nil
}

// key names a login in the keyring. Settings in other files have other logins.
func (s *Store) key(c *Context) string { return c.Name + "@" + s.path }
