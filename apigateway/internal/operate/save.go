package operate

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// SaveRequest asks for the configuration of a running instance to become a template's.
type SaveRequest struct {
	// Instance is its id or name.
	Instance string
	Template fleet.TemplateRef
	// Prefix is what of its directory is saved; empty means all.
	Prefix string
	// DryRun says that Import changes nothing.
	DryRun bool
	// Import lays a tar archive over the template, as one version.
	Import func(ctx context.Context, message string, archive io.Reader) (fleet.TemplateHead, error)
}

// SaveTemplate lays the text files of a running instance over a template, placeholders
// being placeholders again, and tells which were left out. NotFound when instance or
// template are not there, Conflict when the instance does not run, Unavailable when its
// node does not answer or breaks off: nothing is saved then.
func (o *Operations) SaveTemplate(ctx context.Context, by Actor, q SaveRequest) (head fleet.TemplateHead, report client.ExportReport, err error) {
	s := o.Snapshot()
	i, ok := s.Find(q.Instance)
	if !ok {
		return head, report, errs.New(errs.NotFound, "there is no instance %s", clip(q.Instance))
	}
	if _, err := Template(s, q.Template); err != nil {
		return head, report, err
	}
	if i.State() != fleet.Online {
		return head, report, errs.New(errs.Conflict, "instance %s does not run: only what runs can be saved", i.Intent.Name)
	}
	message := "saved from " + i.Intent.Name
	take := func(ctx context.Context) (fleet.TemplateHead, error) {
		archive, err := o.cfg.Agents.Export(ctx, i, q.Prefix)
		if err != nil {
			return fleet.TemplateHead{}, err
		}
		defer archive.Close()
		return o.passOn(ctx, archive, &report, func(r io.Reader) (fleet.TemplateHead, error) { return q.Import(ctx, message, r) })
	}
	if q.DryRun {
		head, err = take(ctx)
		return head, report, err
	}
	head, err = o.EditTemplate(ctx, by, TemplateEdit{Ref: q.Template, Action: "template.save", What: message, Make: take})
	return head, report, err
}

// passOn hands an export on without its report, which it reads. What has no report at its
// end broke off, and is not imported.
func (o *Operations) passOn(ctx context.Context, archive io.Reader, report *client.ExportReport, take func(io.Reader) (fleet.TemplateHead, error)) (fleet.TemplateHead, error) {
	r, w := io.Pipe()
	var wg sync.WaitGroup
	var broke error
	wg.Go(func() {
		broke = withoutReport(w, archive, report)
		_ = w.CloseWithError(broke) // nil ends it well
	})
	head, err := take(r)
	_ = r.CloseWithError(errs.New(errs.Canceled, "the import ended")) // so that nothing is written on
	wg.Wait()
	if err != nil && broke != nil && !errs.Is(broke, errs.Canceled) && ctx.Err() == nil {
		err = &errs.Error{Op: "operate.passOn", Kind: errs.Unavailable, Message: "the node broke off: nothing was saved, try again", Err: errors.Join(broke, err)}
	}
	return head, err
}

// maxReport bounds the report of an export, in bytes.
const maxReport = 4 << 20

// withoutReport copies a tar archive up to its report, which has to be its last entry.
func withoutReport(w io.Writer, archive io.Reader, report *client.ExportReport) error {
	in, out := tar.NewReader(archive), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if err != nil {
			return errs.As(errs.Unavailable, "operate.export", fmt.Errorf("the archive has no report: %w", err))
		}
		if h.Name == client.ExportReportName {
			if err := json.NewDecoder(io.LimitReader(in, maxReport)).Decode(report); err != nil {
				return errs.As(errs.Unavailable, "operate.export", err)
			}
			return out.Close()
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
