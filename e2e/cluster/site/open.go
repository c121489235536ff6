package site

import (
	"os"
	"path/filepath"
	"strings"
)

// Open lets every user write to a directory, and pass those above it that are temporary: agents that are
// root run instances as other users.
func Open(dir string) error {
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	temporary := filepath.Clean(os.TempDir()) + "/"
	for d := filepath.Dir(dir); strings.HasPrefix(d, temporary); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			return err
		}
	}
	return nil
}
