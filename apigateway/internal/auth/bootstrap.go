package auth

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	firstUser         = "admin"
	generatedPassword = 20 // characters; 32 different ones: 100 bits
)

// bootstrap makes the first user of a store without any. A generated password is
// written to its file before the user exists, so that no crash can lose it.
func (s *Service) bootstrap(ctx context.Context) error {
	users, _, err := store.List(ctx, s.cfg.Store, store.Users())
	if err != nil || len(users) > 0 {
		return errs.Wrap("auth.bootstrap", err)
	}
	password := s.cfg.AdminPassword
	generated := password == ""
	if generated {
		if s.cfg.AdminPasswordFile == "" {
			return errs.Field("admin.password", "a first password for the user %s, or a file to write a generated one to, is required", firstUser)
		}
		password = rand.Text()[:generatedPassword]
	}
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		return err
	}
	if generated {
		if err := writePassword(s.cfg.AdminPasswordFile, password); err != nil {
			return err
		}
	}
	user := fleet.User{Username: firstUser, PasswordHash: hash, Role: RoleAdmin, Epoch: 1, CreatedAt: s.cfg.Now().UTC()}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(store.UserKey(firstUser), user)}})
	switch {
	case errs.Is(err, errs.AlreadyExists): // another replica was faster, and its password holds
		if generated {
			_ = os.Remove(s.cfg.AdminPasswordFile)
		}
		return nil
	case err != nil:
		return errs.Wrap("auth.bootstrap", err)
	}
	if generated {
		s.cfg.Log.Info("the first user was made", "user", firstUser, "passwordFile", s.cfg.AdminPasswordFile)
	}
	_, err = s.cfg.View.WaitRev(ctx, rev)
	return err
}

// writePassword writes by rename, readable for the owner alone.
func writePassword(path, password string) error {
	fail := func(err error) error {
		return &errs.Error{
			Op: "auth.bootstrap", Kind: errs.Invalid, Err: err,
			Message: fmt.Sprintf("the generated password cannot be written to %s: choose another file", path),
		}
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".password-*") // mode 0600
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // gone already after the rename
	_, err = tmp.WriteString(password + "\n")
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}
