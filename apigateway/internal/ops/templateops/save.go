package templateops

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// SaveRequest saves files of a running instance as a version of a template.
type SaveRequest struct {
	// Instance is the instance's ID or name.
	Instance string
	// Template is the template that receives the files.
	Template content.TemplateRef
	// Prefix limits the files to a directory; empty selects all.
	Prefix string
	// DryRun says that Import changes nothing.
	DryRun bool
	// Import imports a tar archive into the template as one version.
	Import func(ctx context.Context, message string, archive io.Reader) (content.TemplateHead, error)
}

// SaveTemplate imports the text files of a running instance into a template. Values become
// placeholders again, and report lists the files that were left out. NotFound when the instance or
// template does not exist, Conflict when the instance does not run, Unavailable when its node does
// not answer or the transfer breaks off: then nothing is saved.
func (o *Templates) SaveTemplate(ctx context.Context, by txn.Actor, q SaveRequest) (head content.TemplateHead, report client.ExportReport, err error) {
	s := o.Snapshot()
	i, ok := s.Find(q.Instance)
	if !ok {
		return head, report, errs.New(errs.NotFound, "there is no instance %s", txn.Clip(q.Instance))
	}
	if _, err := Template(s, q.Template); err != nil {
		return head, report, err
	}
	if i.State() != fleet.Online {
		return head, report, errs.New(errs.Conflict, "instance %s does not run: only what runs can be saved", i.Intent.Name)
	}
	message := "saved from " + i.Intent.Name
	take := func(ctx context.Context) (content.TemplateHead, error) {
		archive, err := o.agents.Export(ctx, i, q.Prefix)
		if err != nil {
			return content.TemplateHead{}, err
		}
		defer archive.Close()
		return o.passOn(ctx, archive, &report, func(r io.Reader) (content.TemplateHead, error) { return q.Import(ctx, message, r) })
	}
	if q.DryRun {
		head, err = take(ctx)
		return head, report, err
	}
	head, err = o.EditTemplate(ctx, by, TemplateEdit{Ref: q.Template, Action: "template.save", What: message, Make: take})
	return head, report, err
}

// passOn gives an export to take, without its report, which it decodes. It fails, and nothing is
// imported, when the export ends without a report.
func (o *Templates) passOn(ctx context.Context, archive io.Reader, report *client.ExportReport, take func(io.Reader) (content.TemplateHead, error)) (content.TemplateHead, error) {
	r, w := io.Pipe()
	var wg sync.WaitGroup
	var broke error
	wg.Go(func() {
		broke = withoutReport(w, archive, report)
		_ = w.CloseWithError(broke) // nil means EOF
	})
	head, err := take(r)
	_ = r.CloseWithError(errs.New(errs.Canceled, "the import ended")) // stops the writer
	wg.Wait()
	if err != nil && broke != nil && !errs.Is(broke, errs.Canceled) && ctx.Err() == nil {
		err = &errs.Error{Op: "operate.passOn", Kind: errs.Unavailable, Message: "the node broke off: nothing was saved, try again", Err: errors.Join(broke, err)}
	}
	return head, err
}

// maxReport bounds the report of an export, in bytes.
const maxReport = 4 << 20

// withoutReport copies a tar archive up to its report, which must be the last entry.
func withoutReport(w io.Writer, archive io.Reader, report *client.ExportReport) error {
	in, out := tar.NewReader(archive), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if err != nil {
			return errs.WrapAs(errs.Unavailable, "operate.export", fmt.Errorf("the archive has no report: %w", err))
		}
		if h.Name == client.ExportReportName {
			if err := json.NewDecoder(io.LimitReader(in, maxReport)).Decode(report); err != nil {
				return errs.WrapAs(errs.Unavailable, "operate.export", err)
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
