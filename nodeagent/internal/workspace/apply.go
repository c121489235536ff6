package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
)

// copiers is how many files of one directory are written at once.
const copiers = 2

// application is one laying of a tree over a directory.
type application struct {
	builder *Builder
	root    *os.Root
	request Request
	tree    tree
	// fresh is true when the directory is new and nothing can be in the way.
	fresh bool
	text  *substitution
}

func (b *Builder) apply(ctx context.Context, r Request, t tree, dir string, fresh bool) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, failure(ctx, "the directory could not be opened", err)
	}
	defer root.Close()
	a := &application{builder: b, root: root, request: r, tree: t, fresh: fresh, text: newSubstitution(r.Values)}
	steps := []func(context.Context) error{a.makeDirs, a.placeFiles, a.placeLinks, a.rewriteOthers, a.own}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, failure(ctx, "the directory could not be built", err)
		}
	}
	return append(a.missing(), a.text.notes()...), nil
}

func (a *application) makeDirs(context.Context) error {
	dirs := make([]string, 0, len(a.tree.dirs))
	for d := range a.tree.dirs {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs) // parents first
	for _, d := range dirs {
		err := a.root.Mkdir(d, 0o755)
		if errors.Is(err, fs.ErrExist) {
			if fi, err := a.root.Stat(d); err == nil && !fi.IsDir() {
				return inTheWay(d, "a file", "a directory")
			}
			continue
		}
		if err != nil {
			return err
		}
		if e, ok := a.tree.files[d]; ok && e.Mode != 0 {
			if err := a.root.Chmod(d, fs.FileMode(e.Mode&0o777|0o700)); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeFiles writes the regular files, a few at once; the first error ends all.
func (a *application) placeFiles(ctx context.Context) error {
	paths := a.tree.sorted(fleet.FileRegular)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan string)
	var workers sync.WaitGroup
	for range min(copiers, len(paths)) {
		workers.Go(func() {
			for p := range next {
				if err := a.placeFile(ctx, p); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, p := range paths {
		select {
		case next <- p:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

func (a *application) placeFile(ctx context.Context, p string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := a.tree.files[p]
	if a.keeps(p) {
		return a.rewriteInPlace(p)
	}
	blob, err := a.builder.cache.Path(ctx, e.SHA256)
	if err != nil {
		return fetchFailure(ctx, p, err)
	}
	src, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer src.Close()
	mode := a.mode(p, fs.FileMode(e.Mode&0o777))
	text, rewritten := "", false
	if a.listed(p) {
		if text, rewritten, err = a.text.replaced(p, src, e.Size); err != nil {
			return err
		}
	}
	if rewritten {
		return a.settle(p, mode, int64(len(text)), strings.NewReader(text), writeText(text))
	}
	return a.settle(p, mode, e.Size, io.NewSectionReader(src, 0, e.Size), func(dst *os.File) error {
		if _, err := src.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return clone(dst, src)
	})
}

func writeText(text string) func(*os.File) error {
	return func(dst *os.File) error {
		_, err := dst.WriteString(text)
		return err
	}
}

// settle makes a file what it shall be: one that holds this already is not written
// anew, any other is replaced.
func (a *application) settle(p string, mode fs.FileMode, size int64, want io.Reader, fill func(*os.File) error) error {
	if !a.fresh && a.holds(p, size, want) {
		return a.remode(p, mode)
	}
	return a.write(p, mode, fill)
}

// keeps reports whether a file that is there already stays as it is.
func (a *application) keeps(p string) bool {
	if a.fresh {
		return false
	}
	if _, err := a.root.Lstat(p); err != nil {
		return false
	}
	return !a.request.Plan.Override || protects(a.request.Plan.ProtectedPaths, p)
}

// write makes a file with content. In a directory that is in use it appears as a whole.
func (a *application) write(p string, mode fs.FileMode, fill func(*os.File) error) error {
	name := p
	if !a.fresh {
		if fi, err := a.root.Lstat(p); err == nil && fi.IsDir() {
			return inTheWay(p, "a directory", "a file")
		}
		name = underway(p)
		_ = a.root.Remove(name)
	}
	dst, err := a.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(fill(dst), dst.Chmod(mode), dst.Close())
	if err == nil && name != p {
		err = a.root.Rename(name, p)
	}
	if err != nil && !a.fresh {
		_ = a.root.Remove(name)
	}
	return err
}

// underway is what a file is called before it is whole. A name as long as a
// filesystem takes leaves no room for more, so it is not made of the file's own.
func underway(p string) string {
	sum := sha256.Sum256([]byte(p))
	return path.Join(path.Dir(p), ".orrery-new-"+hex.EncodeToString(sum[:12]))
}

// clone gives dst the content of src: shared by the filesystem where it can, else copied by the kernel.
func clone(dst, src *os.File) error {
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	_, err := io.Copy(dst, src)
	return err
}

func (a *application) placeLinks(context.Context) error {
	for _, p := range a.tree.sorted(fleet.FileSymlink) {
		if a.keeps(p) {
			continue
		}
		if !a.fresh {
			if target, err := a.root.Readlink(p); err == nil && target == a.tree.files[p].Target {
				continue
			}
			_ = a.root.Remove(p)
		}
		if err := a.root.Symlink(a.tree.files[p].Target, p); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) listed(p string) bool {
	return slices.ContainsFunc(a.request.Plan.FileModifications, func(pattern string) bool { return glob(pattern, p) })
}

// rewriteInPlace replaces placeholders in a listed file of a static directory that was kept.
func (a *application) rewriteInPlace(p string) error {
	if !a.listed(p) {
		return nil
	}
	src, fi, err := a.openKept(p)
	if err != nil {
		return err
	}
	if src == nil {
		a.text.leaveAlone(p, "not a file")
		return nil
	}
	defer src.Close()
	text, changed, err := a.text.replaced(p, src, fi.Size())
	if err != nil || !changed {
		return err
	}
	return a.write(p, a.mode(p, fi.Mode().Perm()), writeText(text))
}

// rewriteOthers handles listed files that no layer brings: those a server wrote.
func (a *application) rewriteOthers(context.Context) error {
	if a.fresh {
		return nil
	}
	for _, name := range a.request.Plan.FileModifications {
		p := path.Clean(name)
		if _, brought := a.tree.files[p]; brought || isPattern(name) {
			continue
		}
		if _, err := a.root.Lstat(p); err != nil {
			continue
		}
		if err := a.rewriteInPlace(p); err != nil {
			return err
		}
	}
	return nil
}

// missing notes the listed names that no file answers to.
func (a *application) missing() []string {
	var notes []string
	for _, pattern := range a.request.Plan.FileModifications {
		found := false
		for p, e := range a.tree.files {
			if e.Kind == fleet.FileRegular && glob(pattern, p) {
				found = true
				break
			}
		}
		if !found && !isPattern(pattern) {
			_, err := a.root.Lstat(path.Clean(pattern))
			found = err == nil
		}
		if !found {
			notes = append(notes, fmt.Sprintf("no file matches %s of fileModifications", pattern))
		}
	}
	return notes
}
