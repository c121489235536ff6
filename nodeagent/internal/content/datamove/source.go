package datamove

import (
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
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
)

// hashers is the number of files that are hashed concurrently.
const hashers = 4

// serves returns the directory of an instance that moves away from this node, while it is copied.
// Conflict if that move is not in this step now, Denied if the caller is not the target's agent.
func (m *Mover) serves(ctx context.Context, id fleet.InstanceID, moveID string) (string, error) {
	m.mu.Lock()
	mv := m.moves[id]
	m.mu.Unlock()
	if mv == nil || mv.ID != moveID || mv.Step != move.Copying || mv.Source != m.cfg.Node || mv.SourceUUID != m.cfg.DataUUID {
		return "", errs.New(errs.Conflict, "instance %s is not copied from this node now", id)
	}
	if err := trust.Allow(ctx, pki.Identity{Service: pki.Agent, Name: string(mv.Target)}); err != nil {
		return "", err
	}
	dir := m.cfg.Workspace.StaticDir(mv.Group, mv.Name)
	_, held, _, err := claim.Holder(dir)
	if err == nil && held {
		err = errs.New(errs.Conflict, "processes of instance %s still use its directory on node %s", mv.Name, m.cfg.Node)
	}
	return dir, err
}

// Editable is nil unless the directory of an instance on this node is being copied, or is no longer
// the instance's data. Then it is Conflict: a change would be lost. generation is the latest one that
// was prepared here.
func (m *Mover) Editable(id fleet.InstanceID, generation int64) error {
	m.mu.Lock()
	mv := m.moves[id]
	m.mu.Unlock()
	switch {
	case mv == nil:
		return nil
	case mv.Step == move.Copying:
		return errs.New(errs.Conflict, "instance %s moves from node %s to node %s and its files are copied now: wait until the move ends, or cancel it", mv.Name, mv.Source, mv.Target)
	case mv.Source == m.cfg.Node && generation <= mv.Generation && (mv.Step == move.Starting || mv.Step == move.Done):
		return errs.New(errs.Conflict, "instance %s has moved and its files are on node %s: start it there, then change them", mv.Name, mv.Target)
	}
	return nil
}

// List writes the list of the directory of an instance that moves away; see client.MovedLine. It
// hashes every file, and calls flush to send the signs of progress at once. Conflict before anything is
// written if the move is not in that step.
func (m *Mover) List(ctx context.Context, id fleet.InstanceID, moveID string, w io.Writer, flush func() error) error {
	dir, err := m.serves(ctx, id, moveID)
	if err != nil {
		return err
	}
	l := &lister{out: json.NewEncoder(w), flush: flush}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l.out.Encode(client.MovedLine{End: &client.MovedEnd{Absent: true}})
	}
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.List", err)
	}
	defer root.Close()
	if err := mark(root, moveID); err != nil {
		return err
	}
	switch err := l.walk(ctx, root); {
	case errs.Is(err, errs.TooLarge), errs.Is(err, errs.Invalid):
		return l.out.Encode(client.MovedLine{End: &client.MovedEnd{Error: errs.MessageOf(err)}})
	case errors.Is(err, fs.ErrPermission):
		return l.out.Encode(client.MovedLine{End: &client.MovedEnd{Error: "the agent may not read all files: " + clip(err.Error())}})
	case err != nil:
		return err
	}
	return l.out.Encode(client.MovedLine{End: &client.MovedEnd{Entries: l.entries}})
}

// mark writes the ID of a move into a directory.
func mark(root *os.Root, moveID string) error {
	_ = root.Remove(claim.MarkName) // it may be a link
	f, err := root.OpenFile(claim.MarkName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.mark", err)
	}
	_, err = f.WriteString(moveID)
	return errs.WrapAs(errs.Unavailable, "datamove.mark", errors.Join(err, f.Sync(), f.Close()))
}

// marked returns the ID of the latest move of a directory, or "".
func marked(dir string) string {
	f, err := os.OpenFile(filepath.Join(dir, claim.MarkName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 128))
	return string(b)
}

// lister writes the entries of a directory.
type lister struct {
	mu      sync.Mutex // protects the other fields
	out     *json.Encoder
	flush   func() error
	entries int
	hashed  int64 // bytes
	told    int64 // bytes that the target knows to be hashed
}

// Write implements io.Writer. It counts bytes that are hashed, and tells each piece of them to the
// target at once, so that a large file does not look like a stall.
func (l *lister) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hashed += int64(len(b))
	if l.hashed-l.told < piece {
		return len(b), nil
	}
	l.told = l.hashed
	return len(b), errors.Join(l.out.Encode(client.MovedLine{Hashed: l.hashed}), l.flush())
}

func (l *lister) add(e client.MovedEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries++
	return l.out.Encode(client.MovedLine{MovedEntry: &e, Hashed: l.hashed})
}

func (l *lister) walk(ctx context.Context, root *os.Root) error {
	hashing, ctx := errgroup.WithContext(ctx)
	hashing.SetLimit(hashers)
	found := 0
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case !utf8.ValidString(p): // before err, because a directory with such a name cannot be read
			return errs.New(errs.Invalid, "the name %q is not UTF-8 and cannot be moved: rename it", p)
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case p == claim.FileName || p == claim.MarkName:
			return nil
		}
		if found++; found > move.MaxFiles {
			return errs.New(errs.TooLarge, "it has more than %d files and directories: remove some, or copy it by hand", move.MaxFiles)
		}
		e, err := entryOf(root, p, d)
		switch {
		case err != nil || e == nil:
			return err
		case e.Kind != client.MovedFile:
			return l.add(*e)
		}
		hashing.Go(func() (err error) {
			if e.Size, e.SHA256, err = hash(ctx, root, p, l); err != nil {
				return err
			}
			return l.add(*e)
		})
		return nil
	})
	if hashed := hashing.Wait(); err == nil || hashed != nil && ctx.Err() != nil {
		err = hashed
	}
	if errs.Is(err, errs.TooLarge) || errs.Is(err, errs.Invalid) {
		return err
	}
	return errs.WrapAs(errs.Unavailable, "datamove.walk", err)
}

// entryOf describes a file without its hash. It is nil for a socket.
func entryOf(root *os.Root, p string, d fs.DirEntry) (*client.MovedEntry, error) {
	info, err := d.Info()
	if err != nil {
		return nil, err
	}
	e := &client.MovedEntry{Path: p, Mode: uint32(info.Mode() & modeBits), ModifiedNanos: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = int(st.Uid), int(st.Gid)
	}
	switch kind := info.Mode().Type(); kind {
	case 0:
		e.Kind = client.MovedFile
	case fs.ModeDir:
		e.Kind = client.MovedDir
	case fs.ModeSymlink:
		e.Kind = client.MovedLink
		if e.Target, err = root.Readlink(p); !utf8.ValidString(e.Target) {
			return nil, errs.New(errs.Invalid, "the link %q leads to %q, which is not UTF-8, and cannot be moved: rename what it leads to, and replace the link", p, e.Target)
		}
	case fs.ModeNamedPipe:
		e.Kind = client.MovedPipe
	case fs.ModeSocket:
		return nil, nil
	default:
		return nil, errs.New(errs.Invalid, "%s is a device, which cannot be moved: remove it", path.Clean(p))
	}
	if strings.ContainsAny(p, "\n\x00") {
		return nil, errs.New(errs.Invalid, "%s has a line break in its name and cannot be moved: rename it", fmt.Sprintf("%q", p))
	}
	return e, err
}

// modeBits are the bits of a mode that are kept.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// hash returns the size and the SHA-256 of a file. It also writes the content to counter.
func hash(ctx context.Context, root *os.Root, p string, counter io.Writer) (size int64, sum string, err error) {
	f, err := root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(h, counter), reader{ctx, f})
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// reader is a reader that ends with a context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return r.r.Read(b)
}

// Open opens a file of an instance that moves away, from an offset on. The caller closes it. Conflict
// if the move is not in that step, NotFound if the file does not exist.
func (m *Mover) Open(ctx context.Context, id fleet.InstanceID, moveID, p string, offset int64) (io.ReadCloser, error) {
	dir, err := m.serves(ctx, id, moveID)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errs.WrapAs(errs.NotFound, "datamove.Open", err)
	}
	defer root.Close()
	f, err := root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WrapAs(errs.NotFound, "datamove.Open", err)
	}
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "datamove.Open", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errs.New(errs.NotFound, "%s is no longer a file", p)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, errs.WrapAs(errs.Unavailable, "datamove.Open", err)
	}
	return f, nil
}
