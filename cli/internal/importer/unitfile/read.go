package unitfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/importer/source"
)

// Read reads a unit with its drop-ins: from a path, from systemctl cat, or from the directories of
// systemd if there is no systemctl.
func Read(unit string) (name string, file File, err error) {
	file = File{}
	if strings.Contains(unit, "/") {
		err := readUnitFile(file, unit)
		if template := templateOf(unit); errors.Is(err, fs.ErrNotExist) && template != unit {
			err = readUnitFile(file, template)
		}
		return filepath.Base(unit), file, err
	}
	name = unit
	if filepath.Ext(name) == "" {
		name += ".service"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, "systemctl", "cat", "--", name).Output()
	if err == nil && len(text) > 0 && len(text) <= source.MaxConfig {
		return name, file, file.Parse("systemctl cat "+name, string(text))
	}
	return name, file, findUnit(file, name)
}

// findUnit reads a unit from the directories of systemd, for a machine without a running one.
func findUnit(u File, name string) error {
	for _, dir := range []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		for _, file := range []string{name, templateOf(name)} {
			err := readUnitFile(u, filepath.Join(dir, file))
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return fmt.Errorf("no unit %s was found by systemctl cat or in /etc/systemd/system; give the path of its file", name)
}

// templateOf returns the template of a unit with an instance: lobby@one.service is made from
// lobby@.service.
func templateOf(unit string) string {
	prefix, instance, ok := strings.Cut(unit, "@")
	if !ok {
		return unit
	}
	return prefix + "@" + filepath.Ext(instance)
}

// readUnitFile reads a unit file and the drop-ins beside it.
func readUnitFile(u File, file string) error {
	found, err := filepath.Glob(filepath.Join(file+".d", "*.conf"))
	if err != nil {
		found = nil // the name has a wildcard: it has no drop-ins
	}
	for _, name := range append([]string{file}, found...) {
		text, err := source.ReadFile(name)
		if err != nil {
			return err
		}
		if err := u.Parse(name, string(text)); err != nil {
			return err
		}
	}
	return nil
}
