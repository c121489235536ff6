package backup

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

// Restore begins to replace the directory by a backup. Errors are those of client.RestoreBackup.
func (k *Keeper) Restore(p Place, id string, dryRun bool) (client.Backup, error) {
	if err := k.replaceable(p); err != nil {
		return client.Backup{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.all[p.key()][id]
	if !ok {
		return client.Backup{}, noBackup(p, id)
	}
	if err := room(k.cfg.DataDir, b.Bytes); err != nil {
		return client.Backup{}, err
	}
	if dryRun && !k.busy[p.key()] {
		return k.shown(p, b), nil
	}
	if err := k.begin(p); err != nil {
		return client.Backup{}, err
	}
	whole := b.Backup
	b.State, b.Message, b.Files, b.Bytes, b.done = client.BackupRestoring, "", 0, 0, make(chan struct{})
	out := k.shown(p, b)
	k.running.Go(func() { k.restore(p, b, whole) })
	return out, nil
}

// replaceable returns Conflict while a server uses the directory, or it moves.
func (k *Keeper) replaceable(p Place) error {
	if err := p.Allowed(); err != nil {
		return err
	}
	_, held, _, err := claim.Holder(k.source(p))
	if err == nil && (held || p.Console.Running()) {
		err = errs.New(errs.Conflict, "instance %s runs: stop it first, because its directory is replaced as a whole", p.Name)
	}
	return err
}

// restore restores a backup, and ends that. whole is the record of the complete backup.
func (k *Keeper) restore(p Place, b *kept, whole client.Backup) {
	staging := filepath.Join(k.restoring(), b.ID+"-"+newID(k.cfg.Now()))
	err := k.work(k.ctx, func(ctx context.Context) error {
		if err := k.unpack(ctx, p, b, whole, staging); err != nil {
			return fmt.Errorf("unpack the archive: %w", err)
		}
		return k.exchange(ctx, p, staging)
	})
	k.finishRestore(staging)
	k.mu.Lock()
	delete(k.busy, p.key())
	close(b.done)
	b.Backup, b.done = whole, nil
	if err != nil {
		b.Message = "could not be restored: " + causeOf(err)
		k.mu.Unlock()
		k.cfg.Log.Error("a backup could not be restored: the directory is as it was", "instance", p.Name, "backup", b.ID, "error", err)
		return
	}
	b.Message, b.Restored = "", k.cfg.Now().UTC()
	text, err := json.Marshal(b)
	k.mu.Unlock()
	k.cfg.Log.Info("restored a backup", "instance", p.Name, "backup", b.ID)
	if err == nil {
		err = writeSynced(k.path(p, b.ID, recordEnd), text)
	}
	if err != nil {
		k.cfg.Log.Warn("cannot record when a backup was restored", "backup", b.ID, "error", err)
	}
}

func (k *Keeper) restoring() string { return filepath.Join(k.cfg.DataDir, "restoring") }

// The files of a restore. placeName is written before the exchange, when treeName may hold the old data.
const (
	treeName  = "tree"
	placeName = "place.json"
)

// place is the content of placeName.
type place struct {
	Group fleet.GroupName `json:"group"`
	Name  string          `json:"name"`
}

// finishRestores ends the restores of a killed agent.
func (k *Keeper) finishRestores() {
	left, _ := os.ReadDir(k.restoring())
	for _, d := range left {
		k.finishRestore(filepath.Join(k.restoring(), d.Name()))
	}
}

// finishRestore removes the files of a restore. From placeName on, the tree may be the replaced directory:
// then it is set aside. A tree that was not exchanged is set aside too, because the two cannot be distinguished.
func (k *Keeper) finishRestore(dir string) {
	var at place
	b, err := os.ReadFile(filepath.Join(dir, placeName))
	switch {
	case err == nil:
		if err = json.Unmarshal(b, &at); err == nil {
			err = k.cfg.Aside(filepath.Join(dir, treeName), at.Group, at.Name)
		}
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil {
		err = workspace.RemoveTree(dir)
	}
	if err != nil {
		k.cfg.Log.Error("cannot set aside or remove the files of a restore: they stay", "directory", dir, "error", err)
	}
}

// unpack unpacks an archive, and verifies that it is the one that was written.
func (k *Keeper) unpack(ctx context.Context, p Place, b *kept, whole client.Backup, staging string) error {
	tree := filepath.Join(staging, treeName)
	if err := os.MkdirAll(tree, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.Open(k.path(p, b.ID, archiveEnd))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	in, err := zstd.NewReader(io.TeeReader(reader{ctx, f}, sum), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer in.Close()
	u := &unpacker{root: root, dir: k.cfg.DataDir, progress: func(files int, bytes int64) {
		k.mu.Lock()
		b.Files, b.Bytes = files, bytes
		k.mu.Unlock()
	}}
	err = u.all(tar.NewReader(bufio.NewReaderSize(in, 1<<20)))
	if err == nil {
		_, err = io.Copy(sum, f) // what is left behind the end of the archive
	}
	if err == nil && (u.files != whole.Files || hex.EncodeToString(sum.Sum(nil)) != b.SHA256) {
		err = errs.New(errs.Invalid, "the archive is damaged: it is not what was written")
	}
	return err
}

// unpacker unpacks an archive into a new directory.
type unpacker struct {
	root     *os.Root
	dir      string
	files    int
	bytes    int64
	checked  int64
	progress func(files int, bytes int64)
	// dirs get their modes and times last, because files are written into them.
	dirs []*tar.Header
}

func (u *unpacker) all(in *tar.Reader) error {
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		h.Name = path.Clean(h.Name)
		if err := u.one(h, in); err != nil {
			return err
		}
		u.files++
		u.progress(u.files, u.bytes)
	}
	for n := len(u.dirs) - 1; n >= 0; n-- {
		if err := u.attributes(u.dirs[n]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) one(h *tar.Header, in io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs = append(u.dirs, h)
		if h.Name == "." {
			return nil
		}
		return u.root.Mkdir(h.Name, 0o700)
	case tar.TypeSymlink:
		if err := u.root.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
		return u.owner(h)
	case tar.TypeFifo:
		if err := u.fifo(h.Name); err != nil {
			return err
		}
		return u.attributes(h)
	case tar.TypeReg:
		if err := u.file(h, in); err != nil {
			return err
		}
		return u.attributes(h)
	}
	return errs.New(errs.Invalid, "%s is neither a file nor a directory nor a link", clip(h.Name))
}

func (u *unpacker) file(h *tar.Header, in io.Reader) error {
	f, err := u.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		if u.bytes-u.checked >= checkEvery {
			if err := room(u.dir, checkEvery); err != nil {
				return errors.Join(err, f.Close())
			}
			u.checked = u.bytes
		}
		var n int64
		n, err = io.CopyN(f, in, checkEvery)
		u.bytes += n
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (u *unpacker) fifo(name string) error {
	dir, err := u.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), path.Base(name), 0o600)
}

// attributes sets the owner, mode and time of an entry.
func (u *unpacker) attributes(h *tar.Header) error {
	if err := u.owner(h); err != nil {
		return err
	}
	const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	return errors.Join(u.root.Chmod(h.Name, h.FileInfo().Mode()&bits), u.root.Chtimes(h.Name, h.ModTime, h.ModTime))
}

// owner sets the owner of an entry, if the agent may.
func (u *unpacker) owner(h *tar.Header) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return u.root.Lchown(h.Name, h.Uid, h.Gid)
}

// exchange puts the unpacked directory in the place of the instance's.
func (k *Keeper) exchange(ctx context.Context, p Place, staging string) error {
	dir, tree := k.source(p), filepath.Join(staging, treeName)
	if err := k.cfg.Workspace.Flush(ctx, tree); err != nil {
		return err
	}
	release, err := claim.Keep(dir, tree, p.Instance, p.Generation)
	if err != nil {
		return err
	}
	defer release()
	if err := p.Allowed(); err != nil {
		return err
	}
	if p.Console.Running() {
		return errs.New(errs.Conflict, "instance %s was started meanwhile: stop it, and try again", p.Name)
	}
	text, err := json.Marshal(place{p.Group, p.Name})
	if err == nil {
		err = writeSynced(filepath.Join(staging, placeName), text)
	}
	if err == nil {
		err = k.cfg.Workspace.Replace(ctx, tree, dir)
	}
	return err
}
