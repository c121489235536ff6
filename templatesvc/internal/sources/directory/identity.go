package directory

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// marker is the file that holds the ID of a template directory. The ID stays with the
// directory when it is moved or mounted elsewhere.
const marker = ".orrery"

// idSyntax is the pattern of an ID.
const idSyntax = `^[A-Za-z0-9_.-]{1,64}$`

// identify returns the ID of a directory. If the directory has none and is not empty,
// identify writes one; an empty directory may be a mount point. If the directory is
// read-only, the ID is derived from the file system and the inode.
func identify(dir string, empty bool) (string, error) {
	id, err := readMarker(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if empty {
		return "", nil
	}
	switch err := writeMarker(dir, rand.Text()); {
	case err == nil, errors.Is(err, fs.ErrExist): // another replica was faster
		return readMarker(dir)
	}
	return placeID(dir)
}

func readMarker(dir string) (string, error) {
	f, err := os.OpenFile(filepath.Join(dir, marker), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(string(text), "\n")
	if ok, err := regexp.MatchString(idSyntax, strings.TrimSpace(id)); err != nil || !ok {
		return "", errs.New(errs.Invalid, "%s must hold up to 64 letters, digits, _ . and - in its first line: remove the file, and templatesvc writes a new one", filepath.Join(dir, marker))
	}
	return strings.TrimSpace(id), nil
}

// writeMarker creates the marker file atomically.
func writeMarker(dir, id string) error {
	f, err := os.CreateTemp(dir, marker+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintf(f, "%s\nThis names the directory of templates: only what it published is removed with it. Keep it.\n", id)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), filepath.Join(dir, marker))
}

// placeID returns an ID for a directory that cannot be written to.
func placeID(dir string) (string, error) {
	var at unix.Statfs_t
	var is unix.Stat_t
	if err := errors.Join(unix.Statfs(dir, &at), unix.Stat(dir, &is)); err != nil {
		return "", err
	}
	return fmt.Sprintf("at-%08x%08x-%d", uint32(at.Fsid.Val[0]), uint32(at.Fsid.Val[1]), is.Ino), nil
}

// placeOf identifies the physical place of a directory, so that a copy with the same marker
// has another place. It returns "" if the file system has no ID.
func placeOf(dir string) string {
	var at unix.Statfs_t
	if unix.Statfs(dir, &at) != nil || at.Fsid.Val == [2]int32{} {
		return ""
	}
	place, err := placeID(dir)
	if err != nil {
		return ""
	}
	return place
}

// deviceOf returns the device of a directory, or 0 if the directory does not exist.
func deviceOf(path string) uint64 {
	var is unix.Stat_t
	if unix.Stat(path, &is) != nil {
		return 0
	}
	return is.Dev
}
