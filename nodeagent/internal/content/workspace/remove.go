package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll removes a directory tree, also one with read-only directories.
func RemoveAll(dir string) error { return removeAll(dir) }

// removeAll removes a directory tree. It first makes read-only directories writable, such as
// package caches, because an agent that is not root could not remove them.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if opened := makeWritable(dir); opened != nil {
		return errors.Join(err, opened)
	}
	return os.RemoveAll(dir)
}

// makeWritable makes all directories of a tree writable. It follows no symlinks.
func makeWritable(dir string) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), filepath.Base(dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return root.Chmod(p, 0o700) // before WalkDir reads it
	})
}
