// Package files shows the files of an instance's directory: lists directories, and reads the
// beginning or end of text files.
//
// Invariants:
//   - It reads nothing outside the directory, also if symlinks change meanwhile. It follows
//     symlinks that stay inside.
//   - It hides the agent's own files, also behind other names.
//   - It opens only regular files and directories. Reading a pipe could block forever.
//   - The size of answers is limited, for directories and files of any size.
//   - Values of secrets are masked, also if only a part of one is inside the shown range.
package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

const (
	// MaxBytes is the maximum number of bytes of a file per request.
	MaxBytes = 1 << 20
	// maxEntries limits the entries of a listing, maxLooked the entries that are examined.
	maxEntries = 1000
	maxLooked  = 20_000
	// maxPath is the maximum length of a path, in bytes.
	maxPath = 4096
	// agentPrefix starts the names of the agent's files.
	agentPrefix = ".orrery"
)

// Viewer shows the files of an instance's directory.
type Viewer struct {
	Dir  string
	Mask secrets.Mask
}

// List lists a directory; "" is the instance's own. Errors have the field path: Invalid if the
// path leads out of it, NotFound if it does not exist, Conflict if it is not a directory.
func (v Viewer) List(name string) (client.Directory, error) {
	d, fi, err := v.open(name)
	if err != nil {
		return client.Directory{}, err
	}
	defer d.Close()
	if !fi.IsDir() {
		return client.Directory{}, pathError(errs.Conflict, "%s is not a directory", name)
	}
	root, err := os.OpenRoot(v.Dir)
	if err != nil {
		return client.Directory{}, OpenError(name, err)
	}
	defer root.Close()
	names, err := d.Readdirnames(maxLooked)
	if err != nil && !errors.Is(err, io.EOF) {
		return client.Directory{}, OpenError(name, err)
	}
	slices.Sort(names)
	lock, _ := root.Lstat(claim.FileName) // SameFile accepts nil
	out := client.Directory{Entries: []client.FileEntry{}, More: len(names) == maxLooked}
	for _, n := range names {
		if strings.HasPrefix(n, agentPrefix) {
			continue
		}
		if len(out.Entries) == maxEntries {
			out.More = true
			break
		}
		out.Entries = append(out.Entries, v.entry(root, lock, path.Join(normalize(name), n)))
	}
	return out, nil
}

// entry examines one entry of a directory.
func (v Viewer) entry(root *os.Root, lock fs.FileInfo, at string) client.FileEntry {
	out := client.FileEntry{Name: v.Mask.Text(strings.ToValidUTF8(path.Base(at), "?")), Other: true}
	fi, err := root.Lstat(at)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		var f *os.File
		if f, fi, err = v.openIn(root, at); err == nil {
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
	if !out.Other {
		out.ETag = ETag(fi)
	}
	return out
}

// Query selects the part of a file to read.
type Query struct {
	Path string
	// Bytes is the maximum length; at most MaxBytes. Tail selects the end of the file.
	Bytes int
	Tail  bool
}

// Read reads a part of a file. Errors have the field path: Invalid if the path leads out of the
// directory, NotFound if it does not exist, Conflict if it is not a regular file.
func (v Viewer) Read(q Query) (client.FileContent, error) {
	f, fi, err := v.open(q.Path)
	if err != nil {
		return client.FileContent{}, err
	}
	defer f.Close()
	if !fi.Mode().IsRegular() {
		return client.FileContent{}, pathError(errs.Conflict, "%s is not a regular file", q.Path)
	}
	out := client.FileContent{Size: fi.Size(), ETag: ETag(fi)}
	shown := min(int64(min(max(q.Bytes, 0), MaxBytes)), out.Size)
	from := int64(0)
	if q.Tail {
		from = out.Size - shown
	}
	out.Cut = shown < out.Size
	margin := int64(max(v.Mask.ContextBytes(), utf8.UTFMax)) // to find secrets that reach into the part
	begin := max(0, from-margin)
	b, err := io.ReadAll(io.NewSectionReader(f, begin, from-begin+shown+margin))
	if err != nil {
		return client.FileContent{}, OpenError(q.Path, err)
	}
	if bytes.IndexByte(b, 0) >= 0 {
		out.Binary = true
		return out, nil
	}
	first := min(int(from-begin), len(b)) // it may have been truncated meanwhile
	last := min(first+int(shown), len(b))
	first, last = trimRunes(b, first, last)
	part := v.Mask.Part(string(b), first, last)
	out.Masked = part != string(b[first:last])
	out.Text = strings.ToValidUTF8(part, string(utf8.RuneError))
	return out, nil
}

// trimRunes shrinks a part so that it does not begin or end inside a character.
func trimRunes(b []byte, first, last int) (from, to int) {
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

// open opens a file or directory by its path, without blocking.
func (v Viewer) open(name string) (*os.File, fs.FileInfo, error) {
	if err := CheckPath(name); err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(v.Dir)
	if err != nil {
		return nil, nil, pathError(errs.NotFound, "does not exist: the instance has no directory now")
	}
	defer root.Close()
	return v.openIn(root, name)
}

// CheckPath checks the form of a path. Errors have the field path: Invalid if it leads out of the
// directory, NotFound if it names a file of the agent.
func CheckPath(name string) error {
	switch {
	case len(name) > maxPath, strings.ContainsRune(name, 0), !filepath.IsLocal(normalize(name)):
		return pathError(errs.Invalid, "%q is not a path inside the instance's directory", clip(name))
	case IsAgentPath(normalize(name)):
		return pathError(errs.NotFound, "%s does not exist in the instance's directory", clip(name))
	}
	return nil
}

// ETag identifies the state of an open file or directory. It changes with each change of the content
// and of the file's attributes, and when another file takes its path. It does not depend on the
// content itself, which may be large or secret.
func ETag(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %d.%d %d.%d", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec))
	return hex.EncodeToString(sum[:16])
}

// OpenIn opens a file or directory in root, the instance's directory. It follows symlinks inside root
// and returns the real path. Errors are those of Read.
func (v Viewer) OpenIn(root *os.Root, name string) (f *os.File, fi fs.FileInfo, real string, err error) {
	if f, fi, err = v.openIn(root, name); err != nil {
		return nil, nil, "", err
	}
	if real, err = RealPath(root, f); err != nil {
		_ = f.Close()
		return nil, nil, "", OpenError(name, err)
	}
	return f, fi, real, nil
}

// RealPath returns the path of an open file below root, with all links resolved.
func RealPath(root *os.Root, f *os.File) (string, error) {
	top, err := root.Open(".")
	if err != nil {
		return "", err
	}
	defer top.Close()
	from, err := nameOf(top)
	if err != nil {
		return "", err
	}
	to, err := nameOf(f)
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// openIn opens a file or directory in root. It follows symlinks inside root.
func (v Viewer) openIn(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	fi, err := root.Stat(normalize(name))
	switch {
	case err != nil:
		return nil, nil, OpenError(name, err)
	case !fi.IsDir() && !fi.Mode().IsRegular(): // opening a pipe would affect its writer
		return nil, nil, pathError(errs.Conflict, "%s is not a regular file", clip(name))
	}
	f, err := root.OpenFile(normalize(name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, OpenError(name, err)
	}
	fi, err = f.Stat() // it may have been replaced meanwhile
	hidden := false
	if err == nil {
		hidden, err = isAgentFile(root, f, fi)
	}
	switch {
	case err != nil:
		err = OpenError(name, err)
	case hidden:
		err = pathError(errs.NotFound, "%s does not exist in the instance's directory", clip(name))
	default:
		return f, fi, nil
	}
	_ = f.Close()
	return nil, nil, err
}

// isAgentFile reports whether an open file is the agent's own, by its real path, or because it is
// another name of the lock file.
func isAgentFile(root *os.Root, f *os.File, fi fs.FileInfo) (bool, error) {
	if lock, err := root.Lstat(claim.FileName); err == nil && os.SameFile(lock, fi) {
		return true, nil
	}
	at, err := RealPath(root, f)
	return IsAgentPath(at), err
}

// nameOf returns the real path of an open file from the kernel.
func nameOf(f *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// IsAgentPath reports whether a path contains a name of the agent's files.
func IsAgentPath(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return strings.HasPrefix(part, agentPrefix) })
}

// normalize makes a path usable for os.Root; "" is the directory itself.
func normalize(name string) string {
	if name == "" {
		return "."
	}
	return strings.TrimSuffix(name, "/")
}

// OpenError explains why a path could not be opened. An error without an errno is os.Root's
// refusal of a path that leads out.
func OpenError(name string, err error) error {
	var refused syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return pathError(errs.NotFound, "%s does not exist in the instance's directory", clip(name))
	case errors.Is(err, unix.ELOOP), !errors.As(err, &refused):
		return &errs.Error{Kind: errs.Invalid, Field: "path", Message: "leads out of the instance's directory: " + clip(name), Err: err}
	}
	return &errs.Error{Kind: errs.Conflict, Field: "path", Message: clip(name) + " cannot be read by the node's agent", Err: err}
}

func pathError(k errs.Kind, format string, args ...any) error {
	err := errs.New(k, format, args...)
	return &errs.Error{Kind: k, Field: "path", Message: errs.MessageOf(err)}
}

// clip shortens a path for a message.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	return strings.ToValidUTF8(name, "?")
}
