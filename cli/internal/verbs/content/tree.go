package content

import (
	"cmp"
	"context"
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
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
)

// entryKind is what is at a path of a template.
type entryKind int

const (
	file entryKind = iota
	directory
	link
)

// entry is a file, directory or link of a template.
type entry struct {
	kind entryKind
	size int64
	// mode has the permission bits of a file.
	mode fs.FileMode
	// sha256 is the digest of a file of the server; empty for local files, which are hashed when
	// needed.
	sha256 string
	// target is where a link leads.
	target string
}

// tree has the entries of a template by their path.
type tree map[string]entry

// definitionsFile holds the definitions of variables in an archive. It is not a file of the template.
const definitionsFile = ".orrery-variables.json"

// alwaysExcluded are names that are never part of a template.
var alwaysExcluded = []string{".git"}

// localTree returns the content of a directory without the entries that match a pattern of exclude.
func localTree(root *os.Root, exclude []string) (tree, error) {
	found := tree{}
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
		byName, _ := path.Match(pattern, path.Base(p)) // checkPatterns refused malformed ones
		byPath, _ := path.Match(pattern, p)
		if byName || byPath {
			return true
		}
	}
	return false
}

func checkPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--exclude %s is not a pattern: %w", pattern, err), "an example is --exclude '*.log'")
		}
	}
	return nil
}

func localEntry(root *os.Root, p string, d fs.DirEntry) (entry, error) {
	info, err := d.Info()
	if err != nil {
		return entry{}, err
	}
	switch {
	case d.IsDir():
		return entry{kind: directory}, nil
	case d.Type().IsRegular():
		return entry{kind: file, size: info.Size(), mode: info.Mode().Perm()}, nil
	case d.Type() == fs.ModeSymlink:
		target, err := root.Readlink(p)
		if err == nil && leavesTree(p, target) {
			err = exit.Hint(fmt.Errorf("%s is a link to %s, which is outside of the directory", p, target), "copy the file, or leave the link out: --exclude "+p)
		}
		return entry{kind: link, target: target}, err
	}
	return entry{}, exit.Hint(fmt.Errorf("%s is neither a file nor a directory nor a link", p), "leave it out: --exclude "+p)
}

// leavesTree reports whether a link at p leads out of the tree.
func leavesTree(p, target string) bool {
	if path.IsAbs(target) || strings.Contains(target, `\`) || strings.Contains(target, ":") && runtime.GOOS == "windows" {
		return true
	}
	end := path.Join(path.Dir(p), target)
	return end == ".." || strings.HasPrefix(end, "../")
}

// filesPerPage is how many entries of a directory are read at once.
const filesPerPage = 5000

// remoteTree returns the content of a version of a template.
func remoteTree(ctx context.Context, client *orrery.Client, name, version string) (tree, error) {
	found, pending := tree{}, []string{""}
	for len(pending) > 0 {
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for page := 1; ; page++ {
			entries, err := client.ListTemplateFiles(ctx, name, &orrery.ListTemplateFilesParams{Path: dir, Version: version, Page: page, PageSize: filesPerPage})
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				found[e.Path] = remoteEntry(e)
				if e.IsDirectory {
					pending = append(pending, e.Path)
				}
			}
			if len(entries) < filesPerPage {
				break
			}
		}
	}
	return found, nil
}

func remoteEntry(e orrery.TemplateFile) entry {
	switch {
	case e.IsDirectory:
		return entry{kind: directory}
	case e.Link != "":
		return entry{kind: link, target: e.Link}
	}
	mode, _ := strconv.ParseUint(e.Mode, 8, 32) // an unknown mode differs from every other
	return entry{kind: file, size: e.Size, mode: fs.FileMode(mode), sha256: e.SHA256}
}

// What a change does to a path, in the words of the API.
const (
	added   = "ADDED"
	changed = "CHANGED"
	removed = "REMOVED"
)

// change is a difference between a template and a directory, or between two versions.
type change struct {
	Path string `json:"path"`
	// Change is added, changed or removed.
	Change  string `json:"change"`
	OldSize int64  `json:"oldSize"`
	NewSize int64  `json:"newSize"`
}

// plan is how a template becomes the content of a directory.
type plan struct {
	// changes are for people. Directories are in it only if they are empty.
	changes []change
	// remove has the paths to remove first; those below a removed directory are not in it.
	remove []string
	// write has the paths to write, sorted.
	write []string
	// bytes is the size of the files to write.
	bytes int64
}

// compare returns how remote becomes local. It reads files only if their sizes are equal.
func compare(root *os.Root, local, remote tree) (plan, error) {
	var p plan
	for _, name := range sortedPaths(remote) {
		was := remote[name]
		is, stays := local[name]
		if stays && (was.kind == directory) == (is.kind == directory) {
			continue
		}
		if was.kind != directory {
			p.changes = append(p.changes, change{Path: name, Change: removed, OldSize: was.size})
		}
		if n := len(p.remove); n == 0 || !strings.HasPrefix(name, p.remove[n-1]+"/") {
			p.remove = append(p.remove, name)
		}
	}
	for _, name := range sortedPaths(local) {
		was, known := remote[name]
		is := local[name]
		differs, err := differ(root, name, is, was, known)
		if err != nil {
			return p, err
		}
		if !differs {
			continue
		}
		p.write = append(p.write, name)
		p.bytes += is.size
		what := added
		if known && was.kind != directory && is.kind != directory {
			what = changed
		}
		if is.kind != directory || emptyDirectory(local, name) {
			p.changes = append(p.changes, change{Path: name, Change: what, OldSize: was.size, NewSize: is.size})
		}
	}
	slices.SortStableFunc(p.changes, func(a, b change) int { return cmp.Compare(a.Path, b.Path) })
	return p, nil
}

// sortedPaths returns the paths of a tree so that the content of a directory follows it at once.
func sortedPaths(t tree) []string {
	paths := make([]string, 0, len(t))
	for name := range t {
		paths = append(paths, name)
	}
	slices.SortFunc(paths, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	return paths
}

func emptyDirectory(t tree, dir string) bool {
	for name := range t {
		if strings.HasPrefix(name, dir+"/") {
			return false
		}
	}
	return true
}

// differ reports whether the local entry must be written over that of the server.
func differ(root *os.Root, name string, is, was entry, known bool) (bool, error) {
	switch {
	case !known || is.kind != was.kind:
		return true, nil
	case is.kind == directory:
		return false, nil
	case is.kind == link:
		return is.target != was.target, nil
	case is.size != was.size || is.mode != was.mode && runtime.GOOS != "windows":
		return true, nil
	}
	digest, err := digestOf(root, name)
	return digest != was.sha256, err
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

// openDirectory opens a directory of this machine as the content of a template.
func openDirectory(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.With(exit.NotFound, fmt.Errorf("there is no directory %s", dir), "")
	}
	return root, err
}
