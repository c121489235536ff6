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
		printed := h.Close
		h.Close = func() { printed(); _ = os.RemoveAll(spool) }
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
	defer func() {
		if h == nil {
			_ = f.Close()
		}
	}()
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
	p := &printed{file: f, source: r.Source, spool: spool}
	refs, err := p.templates(ctx)
	if err != nil {
		return nil, err
	}
	h = &origin.Holding{Revision: revision, Close: func() { _ = f.Close() }}
	for _, ref := range refs {
		h.Templates = append(h.Templates, origin.Template{Ref: ref, Manifest: func(ctx context.Context, add origin.Add) (fleet.Manifest, error) {
			return p.manifest(ctx, ref, add)
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

// printed is the archive that a program printed.
type printed struct {
	file   *os.File
	source fleet.TemplateSource
	spool  string
}

func (p *printed) read(ctx context.Context, each func(archive.Entry, io.Reader) error) error {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return errs.As(errs.Unavailable, "program.read", err)
	}
	return archive.Read(ctx, p.file, archive.Options{Limits: archive.DefaultLimits(), Spool: p.spool}, each)
}

// templates are those whose entries are in the archive, which is read wholly.
func (p *printed) templates(ctx context.Context) ([]fleet.TemplateRef, error) {
	refs := map[fleet.TemplateRef]bool{}
	err := p.read(ctx, func(e archive.Entry, _ io.Reader) error {
		if ref, _, ok := origin.Place(p.source, e.Path); ok {
			refs[ref] = true
		}
		return nil
	})
	return slices.SortedFunc(maps.Keys(refs), func(a, b fleet.TemplateRef) int { return strings.Compare(a.String(), b.String()) }), err
}

// manifest reads one template of the archive.
func (p *printed) manifest(ctx context.Context, wanted fleet.TemplateRef, add origin.Add) (fleet.Manifest, error) {
	entries, parents := map[string]fleet.ManifestEntry{}, map[string]bool{}
	err := p.read(ctx, func(e archive.Entry, content io.Reader) error {
		ref, inside, ok := origin.Place(p.source, e.Path)
		if !ok || ref != wanted {
			return nil
		}
		m := fleet.ManifestEntry{Path: inside, Kind: e.Kind, Mode: e.Mode, Target: e.Target}
		for at, c := range inside {
			if c == '/' {
				parents[inside[:at]] = true
			}
		}
		var is fleet.Content
		switch {
		case e.Kind != fleet.FileRegular:
		case e.Same != "":
			from, first, _ := origin.Place(p.source, e.Same)
			is = fleet.Content{Size: entries[first].Size, SHA256: entries[first].SHA256, Chunks: entries[first].Chunks}
			if from != wanted || is.SHA256 == "" {
				return errs.New(errs.Invalid, "%s is a hard link to another template's file: print the file itself", e.Path)
			}
		default:
			var err error
			if is, err = add(content, archive.DefaultLimits().EntryBytes); err != nil {
				return err
			}
		}
		m.Size, m.SHA256, m.Chunks = is.Size, is.SHA256, is.Chunks
		entries[inside] = m
		return nil
	})
	var m fleet.Manifest
	for path, e := range entries {
		if e.Kind != fleet.FileDir || !parents[path] {
			m.Entries = append(m.Entries, e)
		}
	}
	return m, err
}
