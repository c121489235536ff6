package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/cli/internal/exit"
)

// WriteFile writes a file of this machine in one step, so that nobody sees half of it. It replaces a
// file only with force.
func WriteFile(name string, content []byte, force bool) error {
	if _, err := os.Lstat(name); err == nil && !force {
		return exit.With(exit.Conflict, fmt.Errorf("%s exists already", name), "choose another name, or pass --force")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".orrery-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	return err
}
