// Package settings stores the servers that the user knows, and their logins.
//
// They are in one file, readable by its owner only, in the user's directory for configuration.
// Tokens are in the keyring of the desktop if it has one, otherwise in the same file.
package settings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"
	"go.yaml.in/yaml/v3"
)

// Context is a named server with the login of one user.
type Context struct {
	Name string `yaml:"name"`
	// Servers are the base URLs of the gateways of one cluster.
	Servers []string `yaml:"servers"`
	// Username is who logged in.
	Username string `yaml:"username,omitempty"`
	// Group is used where a command takes --group and has none.
	Group string `yaml:"group,omitempty"`
	// Login is absent while the user is logged out, or if the keyring has it.
	Login *Login `yaml:"login,omitempty"`
	// Keyring says that the keyring has the login.
	Keyring bool `yaml:"keyring,omitempty"`
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

// Store reads and writes the settings file. Programs that run at the same time do not lose each
// other's changes.
type Store struct {
	path    string
	keyring Keyring
}

// New returns the Store of a file. keyring may be nil.
func New(path string, keyring Keyring) *Store { return &Store{path: path, keyring: keyring} }

// DefaultPath returns the path of the settings file of the user.
func DefaultPath(env func(string) string) (string, error) {
	if path := env("ORRERY_CONFIG"); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the directory for settings: %w; set ORRERY_CONFIG to a file", err)
	}
	return filepath.Join(dir, "orrery", "config.yaml"), nil
}

// Path returns the path of the file.
func (s *Store) Path() string { return s.path }

// Read returns the settings; empty ones if there is no file.
func (s *Store) Read() (*File, error) {
	file := &File{}
	content, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err == nil {
		err = yaml.Unmarshal(content, file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the settings in %s: %w", s.path, err)
	}
	return file, nil
}

// lockTimeout bounds how long a change waits for that of another program.
const lockTimeout = 20 * time.Second

// Change calls change with the current settings and writes what it left. Other programs wait
// meanwhile. It writes nothing if change fails.
func (s *Store) Change(ctx context.Context, change func(*File) error) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for settings: %w", err)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	file, err := s.Read()
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
	temporary, err := os.CreateTemp(filepath.Dir(s.path), ".config-*") // mode 0600
	if err != nil {
		return fmt.Errorf("cannot write the settings: %w", err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), s.path)
	}
	if err != nil {
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
	if c.Keyring && s.keyring != nil {
		if login, err := s.keyring.Get(s.key(c)); err == nil {
			return login
		}
		return nil
	}
	return c.Login
}

// key names a login in the keyring. Settings in other files have other logins.
func (s *Store) key(c *Context) string { return c.Name + "@" + s.path }
