package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/fileedit"
)

// checkEvery is how much is written before the free space is examined again, in bytes.
const checkEvery = 8 << 20

// Create begins a backup. Errors are those of client.CreateBackup.
func (k *Keeper) Create(p Place, n client.NewBackup) (client.Backup, error) {
	if err := p.Allowed(); err != nil {
		return client.Backup{}, err
	}
	if _, err := os.Stat(k.source(p)); err != nil {
		return client.Backup{}, errs.New(errs.Conflict, "instance %s has no directory yet: start it first", p.Name)
	}
	if err := room(k.cfg.Dir, 0); err != nil && k.broken == nil {
		return client.Backup{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all[p.key()]) >= maxBackups {
		return client.Backup{}, errs.New(errs.Exhausted, "instance %s has %d backups, the most it may have: delete some", p.Name, maxBackups)
	}
	now := k.cfg.Now().UTC()
	b := &kept{Backup: client.Backup{ID: newID(now), State: client.BackupRunning, By: n.By, Begun: now}, done: make(chan struct{})}
	if n.DryRun {
		if k.broken != nil || k.busy[p.key()] {
			return client.Backup{}, k.begin(p)
		}
		return b.Backup, nil
	}
	if err := k.begin(p); err != nil {
		return client.Backup{}, err
	}
	k.put(p.key(), b)
	out := b.Backup
	ctx, cancel := context.WithCancel(k.ctx)
	b.cancel = cancel
	k.running.Go(func() {
		defer cancel()
		k.create(ctx, p, n, b)
	})
	return out, nil
}

func (k *Keeper) source(p Place) string { return k.cfg.Workspace.StaticDir(p.Group, p.Name) }

// create makes a backup, and ends it.
func (k *Keeper) create(ctx context.Context, p Place, n client.NewBackup, b *kept) {
	err := k.work(ctx, func(ctx context.Context) error {
		if err := os.MkdirAll(k.dir(p), 0o700); err != nil {
			return err
		}
		return k.quietly(ctx, p, n, b.ID, func() error { return k.archive(ctx, p, b) })
	})
	if err == nil {
		err = k.complete(p, b)
	}
	if err != nil {
		for _, end := range []string{partialEnd, archiveEnd, recordEnd} {
			_ = os.Remove(k.path(p, b.ID, end))
		}
	}
	k.mu.Lock()
	delete(k.busy, p.key())
	close(b.done)
	b.done, b.Ended = nil, k.cfg.Now().UTC()
	var old []*kept
	if err != nil {
		delete(k.all[p.key()], b.ID)
		b.State, b.Message = client.BackupFailed, causeOf(err)
		k.failed[p.key()] = b.Backup
	} else {
		delete(k.failed, p.key())
		b.State = client.BackupComplete
		old = k.prune(p, n, b)
	}
	done := b.Backup
	k.mu.Unlock()
	if err != nil {
		k.cfg.Log.Error("a backup failed", "instance", p.Name, "by", n.By, "error", err)
		return
	}
	k.cfg.Log.Info("made a backup", "instance", p.Name, "by", n.By, "archive", k.path(p, b.ID, archiveEnd), "bytes", done.Bytes, "size", done.Size)
	for _, b := range old {
		if err := k.remove(p, b.ID); err != nil {
			k.cfg.Log.Error("cannot remove an old backup", "instance", p.Name, "backup", b.ID, "error", err)
		}
	}
}

// quietly does something while the server does not change its data, if it runs and the caller has lines
// that make it so.
func (k *Keeper) quietly(ctx context.Context, p Place, n client.NewBackup, id string, do func() error) error {
	if !p.Console.Running() || len(n.Before) == 0 {
		return do()
	}
	record := k.path(p, id, jobEnd)
	j, err := json.Marshal(job{Instance: p.Instance, Generation: p.Generation, After: n.After})
	if err == nil {
		err = writeSynced(record, j)
	}
	if err != nil {
		return err
	}
	defer func() {
		if missed := write(p.Console, n.After); missed != nil && p.Console.Running() {
			k.running.Go(func() { k.release(record) }) // tries again
			return
		}
		_ = os.Remove(record)
	}()
	if err := pauseServer(ctx, p.Console, n); err != nil {
		return err
	}
	return do()
}

// pauseServer sends the lines that make a server stop changing its data, and waits until it has.
func pauseServer(ctx context.Context, c Console, n client.NewBackup) error {
	from, err := c.Mark()
	if err != nil {
		return err
	}
	if err := write(c, n.Before); err != nil || n.Until == "" {
		return err
	}
	within, cancel := context.WithTimeout(ctx, untilPatience)
	defer cancel()
	err = c.Await(within, from, n.Until)
	if errors.Is(err, context.DeadlineExceeded) {
		return errs.New(errs.Unavailable, "the server did not print %q within %s", n.Until, untilPatience)
	}
	return err
}

// complete gives an archive its name, after its record.
func (k *Keeper) complete(p Place, b *kept) error {
	k.mu.Lock()
	record := *b
	k.mu.Unlock()
	record.State, record.Ended = client.BackupComplete, k.cfg.Now().UTC()
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := writeSynced(k.path(p, b.ID, recordEnd), text); err != nil {
		return err
	}
	return errors.Join(os.Rename(k.path(p, b.ID, partialEnd), k.path(p, b.ID, archiveEnd)), syncDir(k.dir(p)), syncDir(filepath.Dir(k.dir(p))), syncDir(k.cfg.Dir))
}

// prune takes the oldest backups by the same caller beyond those to keep from the list, never the new one, and
// returns them. mu is held.
func (k *Keeper) prune(p Place, n client.NewBackup, made *kept) []*kept {
	if n.Keep <= 0 {
		return nil
	}
	var same []*kept
	for _, b := range k.all[p.key()] {
		if b.By == n.By && b.done == nil && b != made {
			same = append(same, b)
		}
	}
	slices.SortFunc(same, func(a, b *kept) int { return a.Begun.Compare(b.Begun) })
	old := same[:max(0, len(same)+1-n.Keep)]
	for _, b := range old {
		delete(k.all[p.key()], b.ID)
	}
	return old
}

// archive writes the directory to the partial archive.
func (k *Keeper) archive(ctx context.Context, p Place, b *kept) error {
	root, err := os.OpenRoot(k.source(p))
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.OpenFile(k.path(p, b.ID, partialEnd), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := &output{to: f, hash: sha256.New(), dir: k.cfg.Dir}
	err = k.pack(ctx, root, out, b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b.Size, b.SHA256 = out.written, hex.EncodeToString(out.hash.Sum(nil))
	return nil
}

// output writes, hashes, and watches the free space.
type output struct {
	to      io.Writer
	hash    hash.Hash
	dir     string
	written int64
	checked int64
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	if o.written-o.checked >= checkEvery {
		if err := room(o.dir, checkEvery); err != nil {
			return 0, err
		}
		o.checked = o.written
	}
	n, err := o.to.Write(b)
	o.hash.Write(b[:n])
	o.written += int64(n)
	return n, err
}

// room returns Exhausted if a disk has not enough space for a number of bytes.
func room(dir string, bytes int64) error {
	free, _, err := space(dir)
	if err == nil && free-bytes < fileedit.MinFree {
		err = errs.New(errs.Exhausted, "%s: %d MiB are free on the disk of %s, and it needs %d MiB. Free space on it, and try again", fleet.ReasonDiskFull.Text(), free>>20, filepath.Base(dir), (bytes+fileedit.MinFree)>>20)
	}
	return err
}

// space returns the free and all bytes of the disk of a directory.
func space(dir string) (free, all int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, errs.WrapAs(errs.Unavailable, "backup.space", err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// pack writes everything in a directory to an archive, except the agent's locks.
func (k *Keeper) pack(ctx context.Context, root *os.Root, out io.Writer, b *kept) error {
	compressed, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, disk, err := space(root.Name())
	if err != nil {
		return err
	}
	w := &packer{root: root, tar: tar.NewWriter(compressed), most: disk}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case !utf8.ValidString(path):
			return errs.New(errs.Invalid, "the name %q is not UTF-8: rename it", path)
		case err != nil && path != "." && w.isGone(path, fs.ModeDir): // removed or replaced meanwhile
			w.changed++
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case path == claim.FileName || path == claim.MarkName:
			return nil
		}
		err = w.add(ctx, path, d)
		k.mu.Lock()
		b.Files, b.Bytes, b.Changed = w.files, w.bytes, w.changed
		k.mu.Unlock()
		return err
	})
	return errors.Join(err, w.tar.Close(), compressed.Close())
}

// packer writes entries of a directory to an archive.
type packer struct {
	root    *os.Root
	tar     *tar.Writer
	files   int
	bytes   int64
	changed int
	// most bounds the bytes of the files: a file can say that it is larger than its disk.
	most int64
}

// isGone reports whether an entry no longer has a type.
func (w *packer) isGone(path string, kind fs.FileMode) bool {
	info, err := w.root.Lstat(path)
	return err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)) || err == nil && info.Mode().Type() != kind
}

// add writes one entry. A file that a server removes or changes meanwhile is counted.
func (w *packer) add(ctx context.Context, path string, d fs.DirEntry) error {
	var f *os.File
	info, err := d.Info()
	if err == nil && info.Mode().IsRegular() {
		if f, err = w.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0); err == nil {
			defer f.Close()
			info, err = f.Stat()
		}
	}
	if err != nil && w.isGone(path, d.Type()) || err == nil && f != nil && !info.Mode().IsRegular() {
		w.changed++
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case w.files == move.MaxFiles:
		return errs.New(errs.TooLarge, "the directory has more than %d files and directories: remove some", move.MaxFiles)
	case f != nil && w.bytes+info.Size() > w.most:
		return errs.New(errs.TooLarge, "the files are larger than the disk: %s says that it has %d MiB", path, info.Size()>>20)
	}
	h, err := w.header(path, info)
	if err != nil || h == nil {
		return err
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	w.files++
	if f == nil {
		return nil
	}
	return w.content(ctx, f, info)
}

// header describes an entry. It is nil for a socket, and for a link that was removed meanwhile.
func (w *packer) header(path string, info fs.FileInfo) (*tar.Header, error) {
	link := ""
	switch info.Mode().Type() {
	case 0, fs.ModeDir, fs.ModeNamedPipe:
	case fs.ModeSocket:
		return nil, nil
	case fs.ModeSymlink:
		var err error
		if link, err = w.root.Readlink(path); err != nil {
			w.changed++
			return nil, nil
		}
	default:
		return nil, errs.New(errs.Invalid, "%s is a device, which a backup cannot hold: remove it", path)
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return nil, err
	}
	h.Name, h.Format, h.Uname, h.Gname = path, tar.FormatPAX, "", ""
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if info.IsDir() {
		h.Name += "/"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	}
	return h, nil
}

// content writes a file in the size that its header has. It pads a file that became shorter with zeros.
func (w *packer) content(ctx context.Context, f *os.File, info fs.FileInfo) error {
	n, err := io.Copy(w.tar, io.LimitReader(reader{ctx, f}, info.Size()))
	if err == nil && n < info.Size() {
		_, err = io.CopyN(w.tar, zeros{}, info.Size()-n)
	}
	if err != nil {
		return err
	}
	w.bytes += info.Size()
	if after, err := f.Stat(); err != nil || after.Size() != info.Size() || !after.ModTime().Equal(info.ModTime()) {
		w.changed++
	}
	return nil
}

// reader is a reader that ends with a context.
type reader struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return r.Reader.Read(b)
}

// zeros is an endless file of zeros.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// writeSynced replaces a file in one step, and flushes it to the disk.
func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path+newEnd, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cannot write the record of a backup: %w", err)
	}
	return errors.Join(os.Rename(path+newEnd, path), syncDir(filepath.Dir(path)))
}

// syncDir flushes a directory. Some filesystems, such as network ones, do not support it.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
