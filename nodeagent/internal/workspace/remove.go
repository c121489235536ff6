package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// removeAll removes a directory with all in it. What a server has closed to its own user,
// as caches of packages are, is opened first: an agent that is not root could not remove it.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if opened := openAll(dir); opened != nil {
		return errors.Join(err, opened)
	}
	return os.RemoveAll(dir)
}

// openAll makes a directory and all below it its user's to change, whatever links it holds.
func openAll(dir string) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), filepath.Base(dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return root.Chmod(p, 0o700) // before it is read
	})
}
