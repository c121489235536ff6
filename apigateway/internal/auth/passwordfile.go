package auth

import (
	"context"
	"os"
)

// KeepPasswordFile removes the file with the first user's generated password once that
// user has another password, changed here or on another gateway, or while this one was
// down. It returns when the file is gone, or when ctx ends.
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

// fileState is what a look at the password file found.
type fileState uint8

const (
	fileGone fileState = iota
	fileHolds
	fileUnchecked
)

// passwordFile looks whether the file's password has this hash, and removes the file otherwise.
func (s *Service) passwordFile(ctx context.Context, hash string) fileState {
	password, ok := readPassword(s.cfg.AdminPasswordFile)
	if !ok { // it is missing, or no gateway wrote it
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
