package auth

import (
	"context"
	"os"
)

// KeepPasswordFile removes the file with the first user's generated password when the user has another
// password, no matter where and when it was changed. It returns when the file is gone or ctx ends.
func (s *Service) KeepPasswordFile(ctx context.Context) {
	var checked string // the hash that the password in the file was last compared with
	for {
		changed := s.changed.Next()
		if user, known := s.User(firstUser); known && user.PasswordHash != checked {
			switch s.passwordFile(ctx, user.PasswordHash) {
			case fileGone:
				return
			case fileHolds:
				checked = user.PasswordHash
			case fileUnchecked: // the next change tries again
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// fileState is the result of checking the password file.
type fileState uint8

const (
	fileGone fileState = iota
	fileHolds
	fileUnchecked
)

// passwordFile removes the file unless its password matches the hash.
func (s *Service) passwordFile(ctx context.Context, hash string) fileState {
	password, ok := readPassword(s.cfg.AdminPasswordFile)
	if !ok { // missing, or not written by a gateway
		return fileGone
	}
	holds, err := s.hasher.verify(ctx, password, hash)
	switch {
	case err != nil:
		return fileUnchecked
	case holds:
		return fileHolds
	}
	if err := os.Remove(s.cfg.AdminPasswordFile); err != nil {
		s.cfg.Log.Warn("the file with the first password cannot be removed: remove it", "file", s.cfg.AdminPasswordFile, "error", err)
		return fileGone
	}
	s.cfg.Log.Info("removed the file with the first password: the password was changed", "user", firstUser, "file", s.cfg.AdminPasswordFile)
	return fileGone
}
