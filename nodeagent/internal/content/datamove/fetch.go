package datamove

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
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// fetch makes the tree complete.
func (p *puller) fetch(ctx context.Context, source *client.Client, entries []client.MovedEntry) error {
	at := filepath.Join(p.staging(p.mv.Instance), "tree")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetch", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetch", err)
	}
	defer root.Close()
	if err := errors.Join(root.Chmod(".", 0o700), prune(root, entries)); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetch", err)
	}
	if err := p.room(root, entries); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind != client.MovedDir || e.Path == "." {
			continue
		}
		err := root.Mkdir(e.Path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = root.Chmod(e.Path, 0o700)
		}
		if err != nil {
			return permanent(errs.WrapAs(errs.Unavailable, "datamove.fetch", err))
		}
	}
	if err := p.fetchFiles(ctx, source, root, entries); err != nil {
		return permanent(err)
	}
	// The directories come last and the deepest first, because they may become read-only.
	for _, e := range slices.Backward(entries) {
		if err := finish(root, e); err != nil {
			return permanent(errs.WrapAs(errs.Unavailable, "datamove.fetch", err))
		}
		p.settle()
	}
	return nil
}

// prune removes what an earlier attempt has fetched and the list does not have, or has as another
// kind.
func prune(root *os.Root, entries []client.MovedEntry) error {
	listed := make(map[string]client.MovedKind, len(entries))
	for _, e := range entries {
		listed[e.Path] = e.Kind
	}
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		kind := listed[p]
		if d.IsDir() && kind == client.MovedDir {
			return root.Chmod(p, 0o700) // before WalkDir reads it
		}
		if d.Type().IsRegular() && kind == client.MovedFile || !d.IsDir() && (kind == client.MovedLink || kind == client.MovedPipe) {
			return nil
		}
		if err := root.RemoveAll(p); err != nil {
			return err
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// room checks that the disk has room for the missing files.
func (p *puller) room(root *os.Root, entries []client.MovedEntry) error {
	var st unix.Statfs_t
	if err := unix.Statfs(root.Name(), &st); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.room", err)
	}
	missing, have := int64(0), int64(0)
	for _, e := range entries {
		missing += e.Size
		if info, err := root.Lstat(e.Path); err == nil && e.Kind == client.MovedFile {
			have += min(info.Size(), e.Size)
		}
	}
	if missing -= have; have > 0 {
		p.say(fmt.Sprintf("node %s verifies the %d MiB that it has, and fetches the rest", p.mv.Target, have>>20))
	}
	if free := int64(st.Bavail) * st.Bsize; missing+spareBytes > free {
		return &broken{fleet.ReasonDiskFull, fmt.Sprintf("node %s has %d MiB free on its disk and needs %d MiB for the data", p.cfg.Node, free>>20, (missing+spareBytes)>>20)}
	}
	return nil
}

func (p *puller) fetchFiles(ctx context.Context, source *client.Client, root *os.Root, entries []client.MovedEntry) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchers)
	for _, e := range entries {
		if e.Kind != client.MovedFile {
			p.change(func(c *move.Copy) { c.FilesDone++ })
			continue
		}
		g.Go(func() error {
			if err := p.fetchFile(ctx, source, root, e); err != nil {
				return err
			}
			p.change(func(c *move.Copy) { c.FilesDone++ })
			return nil
		})
	}
	return g.Wait()
}

// fetchFile makes a file complete and verifies it. It continues a part of an earlier attempt.
func (p *puller) fetchFile(ctx context.Context, source *client.Client, root *os.Root, e client.MovedEntry) error {
	if info, err := root.Lstat(e.Path); err == nil && info.Mode().IsRegular() {
		if err := root.Chmod(e.Path, 0o600); err != nil {
			return errs.WrapAs(errs.Unavailable, "datamove.fetchFile", err)
		}
	}
	for range wrongHashes {
		sum, err := p.fetchRest(ctx, source, root, e)
		if err != nil || sum == e.SHA256 {
			return err
		}
		p.cfg.Log.Warn("a file of a moved instance has a wrong hash: fetching it again", "instance", p.mv.Name, "file", e.Path)
		p.change(func(c *move.Copy) { c.BytesDone -= e.Size; p.repeats() })
		if err := root.Remove(e.Path); err != nil {
			return errs.WrapAs(errs.Unavailable, "datamove.fetchFile", err)
		}
	}
	// The file may have changed since it was listed.
	_ = os.Remove(filepath.Join(p.staging(p.mv.Instance), "list-"+p.mv.ID))
	return errs.New(errs.Unavailable, "%s arrived with another content than the source has listed: the files are listed again", e.Path)
}

// fetchRest appends what is missing to a file, and returns the hash of the whole file.
func (p *puller) fetchRest(ctx context.Context, source *client.Client, root *os.Root, e client.MovedEntry) (string, error) {
	const op = "datamove.fetchRest"
	f, err := root.OpenFile(e.Path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", errs.WrapAs(errs.Unavailable, op, err)
	}
	defer f.Close()
	h := sha256.New()
	done := progress(func(n int) { p.change(func(c *move.Copy) { c.BytesDone += int64(n) }) })
	have, err := io.Copy(io.MultiWriter(h, done), io.LimitReader(reader{ctx, f}, e.Size))
	if err == nil && have < e.Size {
		err = p.append(ctx, source, io.MultiWriter(&writeback{f: f, at: have, begun: have, stored: have, sync: unix.SyncFileRange}, h, done), e, have)
	}
	if err != nil {
		return "", errs.WrapAs(errs.Unavailable, op, err)
	}
	if err := f.Truncate(e.Size); err != nil {
		return "", errs.WrapAs(errs.Unavailable, op, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// append fetches a file from an offset on. It ends when the source is silent for too long.
func (p *puller) append(ctx context.Context, source *client.Client, out io.Writer, e client.MovedEntry, offset int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	body, err := source.MovedFile(ctx, p.mv.Instance, p.mv.ID, e.Path, offset)
	if err != nil {
		return err
	}
	defer body.Close()
	got, err := io.Copy(out, io.LimitReader(audible{body, quiet}, e.Size-offset))
	if err == nil && got < e.Size-offset {
		err = errs.New(errs.Unavailable, "%s ended too early", e.Path)
	}
	return errs.WrapAs(errs.Unavailable, "datamove.append", err)
}

// audible is a reader whose timer runs only while it reads, so that a slow disk of the target is not
// taken for a silent source.
type audible struct {
	r     io.Reader
	quiet *time.Timer
}

// Read implements io.Reader.
func (a audible) Read(b []byte) (int, error) {
	a.quiet.Reset(silence)
	defer a.quiet.Stop()
	return a.r.Read(b)
}

// writeback is a writer to a file that lets the disk follow. After each piece the disk begins to write
// it, and must have written the one before. So what it has counted as done is stored but for two
// pieces, and the flush at the end is short.
type writeback struct {
	f *os.File
	// at is the offset of the file. Writing has begun up to begun, and has ended up to stored.
	at, begun, stored int64
	sync              func(fd int, offset, n int64, flags int) error
}

// Write implements io.Writer.
func (w *writeback) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	if w.at += int64(n); err != nil || w.at-w.begun < piece {
		return n, err
	}
	err = w.sync(int(w.f.Fd()), w.begun, w.at-w.begun, unix.SYNC_FILE_RANGE_WRITE)
	if before := w.begun - w.stored; err == nil && before > 0 {
		err = w.sync(int(w.f.Fd()), w.stored, before, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	w.stored, w.begun = w.begun, w.at
	if lost(err) {
		return n, &fs.PathError{Op: "write", Path: w.f.Name(), Err: err}
	}
	return n, nil // other errors say that the filesystem cannot do it: the flush at the end does
}

// progress is a writer that counts.
type progress func(int)

// Write implements io.Writer.
func (p progress) Write(b []byte) (int, error) {
	p(len(b))
	return len(b), nil
}

// finish creates links and pipes, and sets the owner, mode and time of an entry.
func finish(root *os.Root, e client.MovedEntry) error {
	switch e.Kind {
	case client.MovedLink:
		_ = root.Remove(e.Path)
		if err := root.Symlink(e.Target, e.Path); err != nil {
			return err
		}
	case client.MovedPipe:
		_ = root.Remove(e.Path)
		if err := mkfifo(root, e.Path); err != nil {
			return err
		}
	case client.MovedFile, client.MovedDir:
	}
	if os.Geteuid() == 0 {
		if err := root.Lchown(e.Path, e.UID, e.GID); err != nil {
			return err
		}
	}
	if e.Kind == client.MovedLink {
		return nil
	}
	at := time.Unix(0, e.ModifiedNanos)
	return errors.Join(root.Chtimes(e.Path, at, at), root.Chmod(e.Path, fs.FileMode(e.Mode)&modeBits))
}

func mkfifo(root *os.Root, p string) error {
	dir, err := root.Open(path.Dir(p))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), path.Base(p), 0o600)
}
