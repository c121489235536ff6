// Package files shows what stands in an instance's directory: what lies in a directory of it,
// and the text of a file or the end of it.
//
// Invariants:
//   - Nothing outside the directory is read, whatever links it holds and whoever changes them
//     meanwhile; links that lead to something within are followed.
//   - What is the agent's own there is neither shown nor told of, whatever other name a link gives it.
//   - Nothing that is no plain file is opened to be read: a pipe would never answer.
//   - What is read and told is bounded, however large a directory or a file is.
//   - Values of secrets are hidden, also where a part of one lies outside of what is shown.
package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
)

const (
	// MaxBytes is the most of a file that is shown at once.
	MaxBytes = 1 << 20
	// maxEntries bounds what is told of a directory, maxLooked what of it is looked at.
	maxEntries = 1000
	maxLooked  = 20_000
	// maxPath bounds a path, in bytes.
	maxPath = 4096
	// own begins the names of what is the agent's.
	own = ".orrery"
)

// Place is a directory of an instance, and what of it must not be told.
type Place struct {
	Dir  string
	Mask secrets.Mask
}

// Entry is what lies in a directory.
type Entry struct {
	Name string
	// Dir is true for a directory, Other for what is neither that nor a file: a link that leads
	// nowhere, out, or to what is not shown, a pipe, a socket.
	Dir, Other bool
	// Size is in bytes, 0 of what is no file.
	Size int64
	// ModifiedAt is when it was written last; zero where nobody knows.
	ModifiedAt time.Time
}

// Listing is what lies in a directory, by name.
type Listing struct {
	Entries []Entry
	// More is true when there is more than is told.
	More bool
}

// List tells what lies in a directory; "" is the instance's own. Errors, all with the field
// path: Invalid for one that leads out, NotFound, Conflict for what is no directory.
func (p Place) List(name string) (Listing, error) {
	d, fi, err := p.open(name)
	if err != nil {
		return Listing{}, err
	}
	defer d.Close()
	if !fi.IsDir() {
		return Listing{}, kind(errs.Conflict, "%s is no directory", name)
	}
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return Listing{}, told(name, err)
	}
	defer root.Close()
	names, err := d.Readdirnames(maxLooked)
	if err != nil && !errors.Is(err, io.EOF) {
		return Listing{}, told(name, err)
	}
	slices.Sort(names)
	lock, _ := root.Lstat(claim.FileName) // nil is the same as nothing
	out := Listing{Entries: []Entry{}, More: len(names) == maxLooked}
	for _, n := range names {
		if strings.HasPrefix(n, own) {
			continue
		}
		if len(out.Entries) == maxEntries {
			out.More = true
			break
		}
		out.Entries = append(out.Entries, p.entry(root, lock, path.Join(clean(name), n)))
	}
	return out, nil
}

// entry looks at one thing of a directory.
func (p Place) entry(root *os.Root, lock fs.FileInfo, at string) Entry {
	out := Entry{Name: p.Mask.Text(strings.ToValidUTF8(path.Base(at), "?")), Other: true}
	fi, err := root.Lstat(at)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		var f *os.File
		if f, fi, err = p.within(root, at); err == nil {
			_ = f.Close()
		}
	}
	if err != nil || os.SameFile(lock, fi) {
		return out
	}
	out.Dir, out.Other, out.ModifiedAt = fi.IsDir(), !fi.IsDir() && !fi.Mode().IsRegular(), fi.ModTime().UTC()
	if fi.Mode().IsRegular() {
		out.Size = fi.Size()
	}
	return out
}

// Query says which part of a file to show.
type Query struct {
	Path string
	// Bytes is how much, MaxBytes at most. Tail wants the end and not the beginning.
	Bytes int
	Tail  bool
}

// Content is a part of a file.
type Content struct {
	Text string
	// Size is the whole file's, in bytes. Cut is true when the part is not all of it.
	Size int64
	Cut  bool
	// Binary is true when the file is not text; then there is no Text.
	Binary bool
}

// Read shows a part of a file. Errors, all with the field path: Invalid for one that leads
// out, NotFound, Conflict for what is no plain file.
func (p Place) Read(q Query) (Content, error) {
	f, fi, err := p.open(q.Path)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	if !fi.Mode().IsRegular() {
		return Content{}, kind(errs.Conflict, "%s is no plain file", q.Path)
	}
	out := Content{Size: fi.Size()}
	shown := min(int64(min(max(q.Bytes, 0), MaxBytes)), out.Size)
	from := int64(0)
	if q.Tail {
		from = out.Size - shown
	}
	out.Cut = shown < out.Size
	around := int64(max(p.Mask.Around(), utf8.UTFMax)) // what of it reaches into the part
	begin := max(0, from-around)
	b, err := io.ReadAll(io.NewSectionReader(f, begin, from-begin+shown+around))
	if err != nil {
		return Content{}, told(q.Path, err)
	}
	if bytes.IndexByte(b, 0) >= 0 {
		out.Binary = true
		return out, nil
	}
	first := min(int(from-begin), len(b)) // it may have become shorter meanwhile
	last := min(first+int(shown), len(b))
	first, last = whole(b, first, last)
	out.Text = strings.ToValidUTF8(p.Mask.Part(string(b), first, last), string(utf8.RuneError))
	return out, nil
}

// whole is a part without the characters that its ends cut.
func whole(b []byte, first, last int) (from, to int) {
	for n := 0; n < utf8.UTFMax && first > 0 && first < last && !utf8.RuneStart(b[first]); n++ {
		first++
	}
	for n := 1; n < utf8.UTFMax && last < len(b) && last-n >= first; n++ {
		if utf8.RuneStart(b[last-n]) {
			if r, size := utf8.DecodeRune(b[last-n:]); r != utf8.RuneError && size > n {
				last -= n
			}
			break
		}
	}
	return first, last
}

// open opens what a path leads to, without waiting for whoever is at the other end of it.
func (p Place) open(name string) (*os.File, fs.FileInfo, error) {
	switch {
	case len(name) > maxPath, strings.ContainsRune(name, 0), !filepath.IsLocal(clean(name)):
		return nil, nil, kind(errs.Invalid, "%q is not a path inside the instance's directory", clip(name))
	case namesOwn(clean(name)):
		return nil, nil, kind(errs.NotFound, "the instance has no %s", name)
	}
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return nil, nil, kind(errs.NotFound, "the instance has no directory now")
	}
	defer root.Close()
	return p.within(root, name)
}

// within opens what a path inside the directory leads to, links included.
func (p Place) within(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	fi, err := root.Stat(clean(name))
	switch {
	case err != nil:
		return nil, nil, told(name, err)
	case !fi.IsDir() && !fi.Mode().IsRegular(): // whoever writes to a pipe would take us for its reader
		return nil, nil, kind(errs.Conflict, "%s is no plain file", clip(name))
	}
	f, err := root.OpenFile(clean(name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, told(name, err)
	}
	fi, err = f.Stat() // it may be another by now
	hidden := false
	if err == nil {
		hidden, err = isOwn(root, f, fi)
	}
	switch {
	case err != nil:
		err = told(name, err)
	case hidden:
		err = kind(errs.NotFound, "the instance has no %s", clip(name))
	default:
		return f, fi, nil
	}
	_ = f.Close()
	return nil, nil, err
}

// isOwn reports whether an open file is the agent's own, by the name it has there and not the
// one it was opened by, or because that is another of the lock.
func isOwn(root *os.Root, f *os.File, fi fs.FileInfo) (bool, error) {
	if lock, err := root.Lstat(claim.FileName); err == nil && os.SameFile(lock, fi) {
		return true, nil
	}
	top, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer top.Close()
	from, err := nameOf(top)
	if err != nil {
		return false, err
	}
	to, err := nameOf(f)
	if err != nil {
		return false, err
	}
	at, err := filepath.Rel(from, to)
	return namesOwn(at), err
}

// nameOf is where an open file lies, as the kernel has it: without links.
func nameOf(f *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// namesOwn reports whether a part of a path is the agent's.
func namesOwn(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return strings.HasPrefix(part, own) })
}

// clean is a path without what says nothing; "" is the directory itself.
func clean(name string) string {
	if name == "" {
		return "."
	}
	return strings.TrimSuffix(name, "/")
}

// told is why a path could not be opened. What no system call refused, the root did: it
// leads out.
func told(name string, err error) error {
	var refused syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return kind(errs.NotFound, "the instance has no %s", clip(name))
	case errors.Is(err, unix.ELOOP), !errors.As(err, &refused):
		return &errs.Error{Kind: errs.Invalid, Field: "path", Message: "leads out of the instance's directory: " + clip(name), Err: err}
	}
	return &errs.Error{Kind: errs.Conflict, Field: "path", Message: clip(name) + " cannot be read by the node's agent", Err: err}
}

func kind(k errs.Kind, format string, args ...any) error {
	err := errs.New(k, format, args...)
	return &errs.Error{Kind: k, Field: "path", Message: errs.MessageOf(err)}
}

// clip is a path short enough to be told.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	return strings.ToValidUTF8(name, "?")
}
