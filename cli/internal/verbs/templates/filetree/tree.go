// Package filetree reads directories and archives as the content of a template, compares them with a template and
// writes them.
package filetree

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/exit"
)

// Kind is what is at a path of a template.
type Kind int

const (
	File Kind = iota
	Directory
	Link
)

// Entry is a file, directory or link of a template.
type Entry struct {
	Kind Kind
	Size int64
	// Mode has the permission bits of a file.
	Mode fs.FileMode
	// SHA256 is the digest of a file of the server; empty for local files, which are hashed when
	// needed.
	SHA256 string
	// Target is where a link leads.
	Target string
}

// Tree has the entries of a template by their path.
type Tree map[string]Entry

// DefinitionsFile holds the definitions of variables in an archive. It is not a file of the template.
const DefinitionsFile = ".orrery-variables.json"

// alwaysExcluded are names that are never part of a template.
var alwaysExcluded = []string{".git"}

// Local returns the content of a directory without the entries whose name or path matches a pattern
// of exclude. A pattern that begins with a slash matches paths only.
func Local(root *os.Root, exclude []string) (Tree, error) {
	found := Tree{}
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == ".":
			return nil
		case excluded(p, exclude) && d.IsDir():
			return fs.SkipDir
		case excluded(p, exclude):
			return nil
		}
		e, err := localEntry(root, p, d)
		found[p] = e
		return err
	})
	return found, err
}

func excluded(p string, patterns []string) bool {
	for _, pattern := range append(patterns, alwaysExcluded...) {
		ofPath, anchored := strings.CutPrefix(pattern, "/")
		byName, _ := path.Match(pattern, path.Base(p)) // CheckPatterns refused malformed ones
		byPath, _ := path.Match(ofPath, p)
		if byName && !anchored || byPath {
			return true
		}
	}
	return false
}

// CheckPatterns fails if a pattern is malformed.
func CheckPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--exclude %s is not a pattern: %w", pattern, err), "an example is --exclude '*.log'")
		}
	}
	return nil
}

func localEntry(root *os.Root, p string, d fs.DirEntry) (Entry, error) {
	info, err := d.Info()
	if err != nil {
		return Entry{}, err
	}
	switch {
	case d.IsDir():
		return Entry{Kind: Directory}, nil
	case d.Type().IsRegular():
		return Entry{Kind: File, Size: info.Size(), Mode: info.Mode().Perm()}, nil
	case d.Type() == fs.ModeSymlink:
		target, err := root.Readlink(p)
		if err == nil && leavesTree(p, target) {
			err = exit.Hint(fmt.Errorf("%s is a link to %s, which is outside of the directory", p, target), "copy the file, or leave the link out: --exclude "+p)
		}
		return Entry{Kind: Link, Target: target}, err
	}
	return Entry{}, exit.Hint(fmt.Errorf("%s is neither a file nor a directory nor a link", p), "leave it out: --exclude "+p)
}

// leavesTree reports whether a link at p leads out of the tree.
func leavesTree(p, target string) bool {
	if path.IsAbs(target) || strings.Contains(target, `\`) || strings.Contains(target, ":") && runtime.GOOS == "windows" {
		return true
	}
	end := path.Join(path.Dir(p), target)
	return end == ".." || strings.HasPrefix(end, "../")
}

// The kinds of changes, named as in the API.
const (
	Added   = "ADDED"
	Changed = "CHANGED"
	Removed = "REMOVED"
)

// Change is a difference between a template and a directory, or between two versions.
type Change struct {
	Path string `json:"path"`
	// Change is Added, Changed or Removed.
	Change  string `json:"change"`
	OldSize int64  `json:"oldSize"`
	NewSize int64  `json:"newSize"`
}

// Plan is how a template becomes the content of a directory.
type Plan struct {
	// Changes are for people. Directories are in it only if they are empty.
	Changes []Change
	// Remove has the paths to remove first; those below a removed directory are not in it.
	Remove []string
	// Write has the paths to write, sorted.
	Write []string
	// Bytes is the size of the files to write.
	Bytes int64
	// WriteFiles and RemoveFiles count what is not a directory: the files to write, and those that go, also below a
	// removed directory.
	WriteFiles, RemoveFiles int
}

// Compare returns how remote becomes local. It reads files only if their sizes are equal.
func Compare(root *os.Root, local, remote Tree) (Plan, error) {
	var p Plan
	for _, name := range sortedPaths(remote) {
		was := remote[name]
		is, stays := local[name]
		if stays && (was.Kind == Directory) == (is.Kind == Directory) {
			continue
		}
		if was.Kind != Directory {
			p.RemoveFiles++
			p.Changes = append(p.Changes, Change{Path: name, Change: Removed, OldSize: was.Size})
		}
		if n := len(p.Remove); n == 0 || !strings.HasPrefix(name, p.Remove[n-1]+"/") {
			p.Remove = append(p.Remove, name)
		}
	}
	paths := sortedPaths(local)
	for i, name := range paths {
		was, known := remote[name]
		is := local[name]
		differs, err := differ(root, name, is, was, known)
		if err != nil {
			return p, err
		}
		if !differs {
			continue
		}
		p.Write = append(p.Write, name)
		p.Bytes += is.Size
		if is.Kind != Directory {
			p.WriteFiles++
		}
		what := Added
		if known && was.Kind != Directory && is.Kind != Directory {
			what = Changed
		}
		empty := i+1 == len(paths) || !strings.HasPrefix(paths[i+1], name+"/")
		if is.Kind != Directory || empty {
			p.Changes = append(p.Changes, Change{Path: name, Change: what, OldSize: was.Size, NewSize: is.Size})
		}
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return p, nil
}

// sortedPaths returns the paths of a tree so that the content of a directory follows it at once.
func sortedPaths(t Tree) []string {
	paths := make([]string, 0, len(t))
	for name := range t {
		paths = append(paths, name)
	}
	slices.SortFunc(paths, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	return paths
}

// differ reports whether the local entry must be written over that of the server.
func differ(root *os.Root, name string, is, was Entry, known bool) (bool, error) {
	switch {
	case !known || is.Kind != was.Kind:
		return true, nil
	case is.Kind == Directory:
		return false, nil
	case is.Kind == Link:
		return is.Target != was.Target, nil
	case is.Size != was.Size || is.Mode != was.Mode && runtime.GOOS != "windows":
		return true, nil
	}
	digest, err := digestOf(root, name)
	return digest != was.SHA256, err
}

func digestOf(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// Dir returns the directory of a path; empty for the root.
func Dir(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

// OpenDirectory opens a directory of this machine as the content of a template.
func OpenDirectory(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.With(exit.NotFound, fmt.Errorf("there is no directory %s", dir), "")
	}
	return root, err
}
