package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/libs/atomicfile"
)

// WriteFile writes a file of this machine in one step, so that nobody sees half of it. It replaces a
// file only with force.
func WriteFile(name string, content []byte, force bool) error {
	if _, err := os.Lstat(name); err == nil && !force {
		return exit.With(exit.Conflict, fmt.Errorf("%s exists already", name), "choose another name, or pass --force")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(name, content)
}
