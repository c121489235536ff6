package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	firstUser         = "admin"
	generatedPassword = 20 // characters; 32 different ones: 100 bits
)

// bootstrap creates the first user of an empty store. A generated password is written to its file
// before the user exists, so that a crash cannot lose it.
func (s *Service) bootstrap(ctx context.Context) error {
	users, _, err := store.List(ctx, s.cfg.Store, keys.Users())
	if err != nil || len(users) > 0 {
		return errs.Wrap("auth.bootstrap", err)
	}
	password := s.cfg.AdminPassword
	generated := password == ""
	if generated {
		if s.cfg.AdminPasswordFile == "" {
			return errs.Field("admin.password", "a first password for the user %s, or a file to write a generated one to, is required", firstUser)
		}
		if password, err = generatePassword(s.cfg.AdminPasswordFile); err != nil {
			return err
		}
	}
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		return err
	}
	user := account.User{Username: firstUser, PasswordHash: hash, Role: RoleAdmin, Epoch: 1, CreatedAt: s.cfg.Now().UTC()}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.User(firstUser), user)}})
	switch {
	case errs.Is(err, errs.AlreadyExists):
		if generated {
			return s.dropForeign(ctx, password)
		}
		return nil
	case err != nil:
		return errs.Wrap("auth.bootstrap", err)
	}
	if generated {
		s.cfg.Log.Info("created the first user", "user", firstUser, "passwordFile", s.cfg.AdminPasswordFile)
	}
	_, err = s.cfg.View.WaitRev(ctx, rev)
	return err
}

// dropForeign removes the password file if another replica created the user with another password.
// Replicas that share the file share the password too.
func (s *Service) dropForeign(ctx context.Context, password string) error {
	user, err := store.Get(ctx, s.cfg.Store, keys.User(firstUser))
	if err != nil {
		return errs.Wrap("auth.bootstrap", err)
	}
	shared, err := s.hasher.verify(ctx, password, user.PasswordHash)
	if err == nil && !shared {
		_ = os.Remove(s.cfg.AdminPasswordFile)
	}
	return err
}

// generatePassword returns the password in a file. It creates both if the file does not exist.
// Concurrent callers get the same password.
func generatePassword(path string) (string, error) {
	fail := func(err error) (string, error) {
		return "", &errs.Error{
			Op: "auth.bootstrap", Kind: errs.Invalid, Err: err,
			Message: fmt.Sprintf("the generated password cannot be written to %s: choose another file", path),
		}
	}
	if password, ok := readPassword(path); ok {
		return password, nil
	}
	password := rand.Text()[:generatedPassword]
	tmp, err := writePassword(path, password)
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp) //nolint:errcheck // gone already after the rename
	err = os.Link(tmp, path)
	if errors.Is(err, fs.ErrExist) {
		if other, ok := readPassword(path); ok {
			return other, nil
		}
	}
	if err != nil { // path exists, or the file system has no links
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fail(err)
	}
	return password, nil
}

// readPassword reads a generated password. ok is false if the file has another format.
func readPassword(path string) (password string, ok bool) {
	b, err := os.ReadFile(path)
	password, line := strings.CutSuffix(string(b), "\n")
	return password, err == nil && line && len(password) == generatedPassword && !strings.Contains(password, "\n")
}

// writePassword writes a new file next to path that only the owner can read.
func writePassword(path, password string) (name string, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".password-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = tmp.WriteString(password + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		_ = os.Remove(tmp.Name())
	}
	return tmp.Name(), err
}
