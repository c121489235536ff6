// Package program reads templates from the output of a program that the operator provides,
// for storage that Orrery does not support.
//
// Invariants: A source only names the program; it cannot choose its path or arguments. The
// output is an archive and is checked like any other. If the program fails, or its output
// is not read completely, nothing is published.
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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// timeout is the maximum duration of a run.
const timeout = 5 * time.Minute

// From returns a Fetch for the programs in a directory. If the program cannot run or fails,
// it returns the error of package dropin, with the last lines of output. Otherwise, it
// returns the errors of package archive.
func From(dir dropin.Dir) func(context.Context, sources.Request) (*sources.Holding, error) {
	return func(ctx context.Context, r sources.Request) (*sources.Holding, error) {
		spool, err := os.MkdirTemp(r.Spool, "program-*")
		if err != nil {
			return nil, errs.WrapAs(errs.Unavailable, "program.Fetch", err)
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

func fetch(ctx context.Context, dir dropin.Dir, r sources.Request, spool string) (h *sources.Holding, err error) {
	work := filepath.Join(spool, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "program.Fetch", err)
	}
	f, err := os.Create(filepath.Join(spool, "printed"))
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "program.Fetch", err)
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
		return nil, errs.WrapAs(errs.Unavailable, "program.Fetch", err)
	}
	u, err := unpack(ctx, f, r.Source, spool)
	if err != nil {
		return nil, err
	}
	h = &sources.Holding{Revision: revision, Close: func() { _ = u.file.Close() }}
	for _, ref := range slices.SortedFunc(maps.Keys(u.members), func(a, b content.TemplateRef) int { return strings.Compare(a.String(), b.String()) }) {
		h.Templates = append(h.Templates, sources.Template{Ref: ref, Manifest: func(ctx context.Context, add sources.Add) (content.Manifest, error) {
			return u.manifest(ctx, ref, add)
		}})
	}
	return h, nil
}

// environment returns everything that a program learns about the source.
func environment(r sources.Request, work string) []string {
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

// unpacked is the unpacked output of a program.
type unpacked struct {
	file    *os.File // the contents of all files, one after the other
	members map[content.TemplateRef][]member
}

// member is one entry of a template.
type member struct {
	archive.Entry
	at int64 // offset of its content; Entry.Size is its length
}

// unpack reads an archive and writes all contents to one file in dir.
func unpack(ctx context.Context, printed io.Reader, s content.TemplateSource, dir string) (u *unpacked, err error) {
	f, err := os.Create(filepath.Join(dir, "unpacked"))
	if err != nil {
		return nil, diskerror.Error("program.unpack", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	u = &unpacked{file: f, members: map[content.TemplateRef][]member{}}
	files, end := map[string]member{}, int64(0)
	err = archive.Read(ctx, printed, archive.Options{Limits: archive.DefaultLimits(), Spool: dir}, func(e archive.Entry, body io.Reader) error {
		m := member{Entry: e, at: end}
		switch {
		case e.Kind != content.FileRegular:
		case e.Same != "": // the file may belong to another template
			m.at, m.Size = files[e.Same].at, files[e.Same].Size
		default:
			n, err := io.Copy(f, body)
			if err != nil { // archive.Read reports the archive's own error first
				return diskerror.Error("program.unpack", err)
			}
			m.Size, end = n, end+n
		}
		files[e.Path] = m
		if ref, inside, ok := sources.Place(s, e.Path); ok {
			m.Path = inside
			u.members[ref] = append(u.members[ref], m)
		}
		return nil
	})
	return u, err
}

// manifest reads one template.
func (u *unpacked) manifest(ctx context.Context, ref content.TemplateRef, add sources.Add) (m content.Manifest, err error) {
	parents := map[string]bool{}
	for _, one := range u.members[ref] {
		for at, c := range one.Path {
			if c == '/' {
				parents[one.Path[:at]] = true
			}
		}
	}
	for _, one := range u.members[ref] {
		if one.Kind == content.FileDir && parents[one.Path] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return m, errs.Wrap("program.manifest", err)
		}
		e := content.ManifestEntry{Path: one.Path, Kind: one.Kind, Mode: one.Mode, Target: one.Target}
		if one.Kind == content.FileRegular {
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
