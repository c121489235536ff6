// Package configurations reads a directory of configurations in the words of Universe, one
// JSON file each, that the operator of templatesvc's machine keeps there.
//
// Invariants: a source says nothing about where the directory is; nothing outside of it is
// read, wherever a link in it may lead, nothing but files, and no more than a bound; and one
// file that cannot be read, as one that is just being written, keeps all of the directory from
// being applied. What is brought says which directory of which machine it is, and when names in
// it came or went last: another one, or a moment, orders nothing to be removed.
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
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
)

// maxTotal is how many bytes all files of a directory may have together: they are read at each
// look.
const maxTotal = 8 << 20

// empty is the revision of a directory without files.
const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// From reads a directory, given by its absolute path. The error is Invalid when there is none,
// when it holds no configuration, and for a file that is none; TooLarge for too many, or too
// much; Unavailable for what the disk refuses.
func From(dir string) func(context.Context, origin.Request) (*origin.Holding, error) {
	machine := machine()
	return func(ctx context.Context, r origin.Request) (*origin.Holding, error) {
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

// machine names this machine since it was started; where the system does not say, this process.
func machine() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return rand.Text()
	}
	return string(text)
}

// reader is one look at a directory.
type reader struct {
	root    *os.Root
	machine string
	asked   origin.Request
}

func (r reader) read(ctx context.Context) (*origin.Holding, error) {
	h := &origin.Holding{}
	names, err := r.list(h)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "the directory cannot be read: %v", err)
	}
	emptied := h.Place == r.asked.At && (r.asked.Attended || r.asked.Seen == empty)
	if len(names) == 0 && !emptied {
		return nil, errs.New(errs.Invalid, "the directory holds no file that ends in .json: what it declared before stays")
	}
	if len(names) > fleet.MaxDeclaredGroups {
		return nil, errs.New(errs.TooLarge, "the directory holds more than %d configurations", fleet.MaxDeclaredGroups)
	}
	sum, total := sha256.New(), 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap("configurations.read", err)
		}
		if fleet.HasControl(name) {
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
		if i := slices.IndexFunc(h.Groups, func(g fleet.DeclaredGroup) bool { return g.Group == group.Group }); i >= 0 {
			return nil, errs.New(errs.Invalid, "%s declares the configuration %s a second time, after %s: keep one file", name, group.Group, h.Groups[i].File)
		}
		h.Groups = append(h.Groups, group)
	}
	if h.Revision = hex.EncodeToString(sum.Sum(nil)); h.Revision == r.asked.Seen && h.Place == r.asked.At {
		return nil, nil
	}
	return h, nil
}

// list are the names of the configurations, in order. It tells which directory has them, and
// since when: that is asked first, so that whatever comes or goes later is another moment.
func (r reader) list(h *origin.Holding) ([]string, error) {
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
	if at.Fsid.Val == [2]int32{} { // the file system has no name of its own
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

// file reads a regular file of the directory.
func (r reader) file(name string) ([]byte, error) {
	f, err := r.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // to open a pipe would wait for a writer
	if err != nil {
		return nil, errs.New(errs.Unavailable, "%s cannot be read: %v", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errs.New(errs.Invalid, "%s is not a file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, fleet.MaxDeclaredBytes+1))
	switch {
	case err != nil:
		return nil, errs.New(errs.Unavailable, "%s cannot be read: %v", name, err)
	case len(text) > fleet.MaxDeclaredBytes:
		return nil, errs.New(errs.TooLarge, "%s is larger than %d KiB", name, fleet.MaxDeclaredBytes>>10)
	}
	return text, nil
}

// declared is what a file declares. The configuration is called what the file says, else as
// the file.
func declared(name string, text []byte) (d fleet.DeclaredGroup, err error) {
	d = fleet.DeclaredGroup{Group: fleet.GroupName(strings.TrimSuffix(name, ".json")), Declaration: fleet.Declaration{File: name, Universe: true}}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // with which editors of Windows begin a file
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
