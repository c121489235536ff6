// Package atomicfile replaces files in one step.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file, which need not exist, with one that only the user can read. Nobody sees half of it: a reader gets
// the old content or the new one, also after a power cut. If name is a symbolic link, Write replaces what it points to.
func Write(name string, content []byte) error {
	target, err := filepath.EvalSymlinks(name)
	switch {
	case err == nil:
		name = target
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".orrery-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Sync()
	}
	err = errors.Join(err, temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
