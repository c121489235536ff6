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
		changed := s.userChanged.Next()
		if user, known := s.User(firstUser); known && user.PasswordHash != checked {
			switch kept, err := s.checkPasswordFile(ctx, user.PasswordHash); {
			case err != nil: // the next change tries again
			case !kept:
				return
			default:
				checked = user.PasswordHash
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// checkPasswordFile removes the file unless its password matches the hash. kept is false if there is
// nothing more to do.
func (s *Service) checkPasswordFile(ctx context.Context, hash string) (kept bool, err error) {
	password, ok := readPassword(s.cfg.AdminPasswordFile)
	if !ok { // missing, or not written by a gateway
		return false, nil
	}
	if matches, err := s.hasher.verify(ctx, password, hash); err != nil || matches {
		return matches, err
	}
	if err := os.Remove(s.cfg.AdminPasswordFile); err != nil {
		s.cfg.Log.Warn("the file with the first password cannot be removed: remove it", "file", s.cfg.AdminPasswordFile, "error", err)
		return false, nil
	}
	s.cfg.Log.Info("removed the file with the first password: the password was changed", "user", firstUser, "file", s.cfg.AdminPasswordFile)
	return false, nil
}
