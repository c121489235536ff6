// Package program brings templates that a program of the machine's operator prints: from
// storages that nobody else knows.
//
// Invariants: a source only names the program, it says nothing about its path or how it
// is called; what the program prints is an archive like any other from outside, with
// the same guards; unless it ends well, and all of it was read, nothing is published.
package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/dropin"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/fulldisk"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
)

// timeout is how long a program may take.
const timeout = 5 * time.Minute

// From fetches from the programs of a directory. The error is dropin's when the program
// cannot be run or fails, with its last lines, else the archive's.
func From(dir dropin.Dir) func(context.Context, origin.Request) (*origin.Holding, error) {
	return func(ctx context.Context, r origin.Request) (*origin.Holding, error) {
		spool, err := os.MkdirTemp(r.Spool, "program-*")
		if err != nil {
			return nil, errs.As(errs.Unavailable, "program.Fetch", err)
		}
		h, err := fetch(ctx, dir, r, spool)
		if h == nil {
			return nil, errors.Join(err, os.RemoveAll(spool))
		}
		unpacked := h.Close
		h.Close = func() { unpacked(); _ = os.RemoveAll(spool) }
		return h, nil
	}
}

func fetch(ctx context.Context, dir dropin.Dir, r origin.Request, spool string) (h *origin.Holding, err error) {
	work := filepath.Join(spool, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, errs.As(errs.Unavailable, "program.Fetch", err)
	}
	f, err := os.Create(filepath.Join(spool, "printed"))
	if err != nil {
		return nil, errs.As(errs.Unavailable, "program.Fetch", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	sum := sha256.New()
	c := r.Credentials
	if _, err := dir.Run(ctx, dropin.Job{
		Program: r.Source.Program, Env: environment(r, work), WorkDir: work, Timeout: timeout,
		Output: io.MultiWriter(f, sum), OutputBytes: archive.DefaultLimits().TotalBytes,
		Secrets: []string{c.Token, c.SSHKey, c.AccessKey, c.SecretKey, c.Webhook},
	}); err != nil {
		return nil, err
	}
	revision := hex.EncodeToString(sum.Sum(nil))
	if revision == r.Seen {
		return nil, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errs.As(errs.Unavailable, "program.Fetch", err)
	}
	u, err := unpack(ctx, f, r.Source, spool)
	if err != nil {
		return nil, err
	}
	h = &origin.Holding{Revision: revision, Close: func() { _ = u.file.Close() }}
	for _, ref := range slices.SortedFunc(maps.Keys(u.members), func(a, b fleet.TemplateRef) int { return strings.Compare(a.String(), b.String()) }) {
		h.Templates = append(h.Templates, origin.Template{Ref: ref, Manifest: func(ctx context.Context, add origin.Add) (fleet.Manifest, error) {
			return u.manifest(ctx, ref, add)
		}})
	}
	return h, nil
}

// environment is all that a program knows of the source.
func environment(r origin.Request, work string) []string {
	env := []string{"LANG=C.UTF-8", "HOME=" + work, "TMPDIR=" + work, "ORRERY_SOURCE=" + r.Source.Name}
	for name, value := range map[string]string{
		"USER": r.Credentials.User, "TOKEN": r.Credentials.Token, "SSH_KEY": r.Credentials.SSHKey,
		"ACCESS_KEY": r.Credentials.AccessKey, "SECRET_KEY": r.Credentials.SecretKey,
	} {
		if value != "" {
			env = append(env, "ORRERY_"+name+"="+value)
		}
	}
	return env
}

// unpacked is the archive that a program printed, read once.
type unpacked struct {
	file    *os.File // the contents of all files, one after the other
	members map[fleet.TemplateRef][]member
}

// member is one entry of a template.
type member struct {
	archive.Entry
	at int64 // where its content begins; Entry.Size tells how much it is
}

// unpack reads all of an archive. It keeps the contents in a file below dir.
func unpack(ctx context.Context, printed io.Reader, s fleet.TemplateSource, dir string) (u *unpacked, err error) {
	f, err := os.Create(filepath.Join(dir, "unpacked"))
	if err != nil {
		return nil, fulldisk.Error("program.unpack", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	u = &unpacked{file: f, members: map[fleet.TemplateRef][]member{}}
	files, end := map[string]member{}, int64(0)
	err = archive.Read(ctx, printed, archive.Options{Limits: archive.DefaultLimits(), Spool: dir}, func(e archive.Entry, content io.Reader) error {
		m := member{Entry: e, at: end}
		switch {
		case e.Kind != fleet.FileRegular:
		case e.Same != "": // of the same archive, in whatever template
			m.at, m.Size = files[e.Same].at, files[e.Same].Size
		default:
			n, err := io.Copy(f, content)
			if err != nil { // the archive's own error is told before it
				return fulldisk.Error("program.unpack", err)
			}
			m.Size, end = n, end+n
		}
		files[e.Path] = m
		if ref, inside, ok := origin.Place(s, e.Path); ok {
			m.Path = inside
			u.members[ref] = append(u.members[ref], m)
		}
		return nil
	})
	return u, err
}

// manifest reads one template.
func (u *unpacked) manifest(ctx context.Context, ref fleet.TemplateRef, add origin.Add) (m fleet.Manifest, err error) {
	parents := map[string]bool{}
	for _, one := range u.members[ref] {
		for at, c := range one.Path {
			if c == '/' {
				parents[one.Path[:at]] = true
			}
		}
	}
	for _, one := range u.members[ref] {
		if one.Kind == fleet.FileDir && parents[one.Path] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return m, errs.Wrap("program.manifest", err)
		}
		e := fleet.ManifestEntry{Path: one.Path, Kind: one.Kind, Mode: one.Mode, Target: one.Target}
		if one.Kind == fleet.FileRegular {
			c, err := add(io.NewSectionReader(u.file, one.at, one.Size), archive.DefaultLimits().EntryBytes)
			if err != nil {
				return m, err
			}
			e.Size, e.SHA256, e.Chunks = c.Size, c.SHA256, c.Chunks
		}
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}
