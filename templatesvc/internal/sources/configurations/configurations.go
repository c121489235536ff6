// Package configurations reads a directory of configurations in Universe's format, one JSON
// file each, on the machine of templatesvc.
//
// Invariants: The operator sets the directory; a source cannot choose it. Only regular
// files inside the directory are read, never the target of a link outside, and only up to
// a maximum size. One unreadable file, such as one that is being written, prevents the whole
// directory from being applied. The Holding identifies the directory and the machine, and
// when names in it last appeared or disappeared, so that another directory or a recent
// change removes nothing.
package configurations

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// maxTotal is the maximum size of all files together in bytes, because each look reads them
// all.
const maxTotal = 8 << 20

// empty is the revision of a directory without files: the SHA-256 of nothing.
const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// From returns a Fetch for a directory with this absolute path. It returns Invalid when the
// directory does not exist or has no configuration, or a file is not valid. It returns
// TooLarge for too many or too large files, and Unavailable for errors of the disk.
func From(dir string) func(context.Context, sources.Request) (*sources.Holding, error) {
	machine := machine()
	return func(ctx context.Context, r sources.Request) (*sources.Holding, error) {
		if dir == "" {
			return nil, errs.New(errs.Invalid, "the replica of templatesvc that works on the source has no sources.configurations-dir: set it, to the same directory for all replicas")
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, errs.New(errs.Invalid, "the directory %s cannot be read: %v", dir, err)
		}
		defer root.Close()
		return reader{root: root, machine: machine, asked: r}.read(ctx)
	}
}

// machine returns an ID of this machine since it was booted, or of this process if the
// system has none.
func machine() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return rand.Text()
	}
	return string(text)
}

// reader performs one look at a directory.
type reader struct {
	root    *os.Root
	machine string
	asked   sources.Request
}

func (r reader) read(ctx context.Context) (*sources.Holding, error) {
	h := &sources.Holding{}
	names, err := r.list(h)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "the directory cannot be read: %v", err)
	}
	emptied := h.Place == r.asked.At && (r.asked.Attended || r.asked.Seen == empty)
	if len(names) == 0 && !emptied {
		return nil, errs.New(errs.Invalid, "the directory holds no file that ends in .json: its earlier declarations stay")
	}
	if len(names) > compose.MaxDeclaredGroups {
		return nil, errs.New(errs.TooLarge, "the directory holds more than %d configurations", compose.MaxDeclaredGroups)
	}
	sum, total := sha256.New(), 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap("configurations.read", err)
		}
		if validate.HasControl(name) {
			return nil, errs.New(errs.Invalid, "the file %q has control characters in its name: give it another", name)
		}
		text, err := r.file(name)
		if err != nil {
			return nil, err
		}
		if total += len(text); total > maxTotal {
			return nil, errs.New(errs.TooLarge, "the directory's configurations have more than %d MiB together", maxTotal>>20)
		}
		_, _ = fmt.Fprintf(sum, "%s\x00%d\x00%s", name, len(text), text)
		group, err := declared(name, text)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(h.Groups, func(g compose.DeclaredGroup) bool { return g.Group == group.Group }); i >= 0 {
			return nil, errs.New(errs.Invalid, "%s declares the configuration %s a second time, after %s: keep one file", name, group.Group, h.Groups[i].File)
		}
		h.Groups = append(h.Groups, group)
	}
	if h.Revision = hex.EncodeToString(sum.Sum(nil)); h.Revision == r.asked.Seen && h.Place == r.asked.At {
		return nil, nil
	}
	return h, nil
}

// list returns the sorted names of the configurations. It also sets the Holding's Place and
// Moment. It reads them first, so that any later change of names gives another Moment.
func (r reader) list(h *sources.Holding) ([]string, error) {
	dir, err := r.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var at unix.Statfs_t
	var is unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(dir.Fd()), &at), unix.Fstat(int(dir.Fd()), &is)); err != nil {
		return nil, err
	}
	disk := fmt.Sprint(at.Fsid.Val)
	if at.Fsid.Val == [2]int32{} { // the file system has no ID
		disk = fmt.Sprint(is.Dev)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", r.machine, disk, is.Ino))
	h.Place = r.asked.Source.Place() + "-" + hex.EncodeToString(sum[:8])
	h.Moment = fmt.Sprint(unix.TimespecToNsec(is.Ctim), " ", unix.TimespecToNsec(is.Mtim))
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' || !strings.HasSuffix(name, ".json") })
	slices.Sort(names)
	return names, nil
}

// file reads a regular file in the directory.
func (r reader) file(name string) ([]byte, error) {
	f, err := r.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // without O_NONBLOCK, opening a pipe would wait for a writer
	if err != nil {
		return nil, errs.New(errs.Unavailable, "%s cannot be read: %v", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errs.New(errs.Invalid, "%s is not a file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, compose.MaxDeclaredBytes+1))
	switch {
	case err != nil:
		return nil, errs.New(errs.Unavailable, "%s cannot be read: %v", name, err)
	case len(text) > compose.MaxDeclaredBytes:
		return nil, errs.New(errs.TooLarge, "%s is larger than %d KiB", name, compose.MaxDeclaredBytes>>10)
	}
	return text, nil
}

// declared returns the group that a file declares. Its name is the field name in the file,
// or else the file's name.
func declared(name string, text []byte) (d compose.DeclaredGroup, err error) {
	d = compose.DeclaredGroup{Group: fleet.GroupName(strings.TrimSuffix(name, ".json")), Declaration: compose.Declaration{File: name, Universe: true}}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows editors may write a byte order mark
	var said struct {
		Name *fleet.GroupName `json:"name"`
	}
	err = json.Unmarshal(text, &said)
	_, mistyped := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return d, errs.New(errs.Invalid, "%s is not a JSON object: it does not begin with {", name)
	case mistyped:
		return d, errs.New(errs.Invalid, "%s: name must be text", name)
	case err != nil:
		return d, errs.New(errs.Invalid, "%s is not a JSON object: %v", name, err)
	}
	if said.Name != nil {
		d.Group = *said.Name
	}
	if err := d.Group.Validate(); err != nil {
		return d, errs.New(errs.Invalid, "%s: %s", name, errs.MessageOf(err))
	}
	var spec bytes.Buffer
	if err := json.Compact(&spec, text); err != nil {
		return d, errs.New(errs.Invalid, "%s is not a JSON object: %v", name, err)
	}
	d.Spec = spec.Bytes()
	return d, nil
}
