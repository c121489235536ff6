package sourceops

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// directory returns the template directories of all templatesvc replicas as one source. NotFound
// when there are none.
func (s *Sources) directory(ctx context.Context) (out Source, err error) {
	all, _, err := store.List(ctx, s.Store, keys.TemplateDirectories())
	if err == nil && len(all) == 0 {
		err = errs.New(errs.NotFound, "no templatesvc has a directory of templates")
	}
	if err != nil {
		return out, errs.Wrap("operate.Sources", err)
	}
	sync, err := txn.GetOptional(ctx, s.Store, keys.DirectorySync())
	out.TemplateSource = content.TemplateSource{Rev: sync.Rev, Name: content.DirectoryOrigin, Kind: content.SourceDirectory, Asked: sync.Asked, Confirmed: sync.Confirmed}
	out.Status = content.SourceStatus{Name: out.Name, Observed: sync.ModRev, State: content.SourceInSync}
	out.Credentials = []string{}
	var told []string
	for _, d := range all {
		if out.Status.At.Before(d.At) {
			out.Status.At = d.At
		}
		if since := cmp.Or(d.Since, d.At); out.CreatedAt.IsZero() || since.Before(out.CreatedAt) {
			out.CreatedAt = since
		}
		for _, item := range d.Items {
			if len(all) > 1 {
				item.Message = d.Replica + ": " + item.Message
			}
			out.Status.Items = append(out.Status.Items, item)
		}
		if d.State != content.SourceInSync {
			told = append(told, d.Replica+": "+d.Message)
		}
		if d.State != content.SourceInSync && d.Held != "" {
			out.waiting = append(out.waiting, d.Held)
		}
		if out.Status.Held == "" && d.State != content.SourceInSync {
			out.Status.State, out.Status.Held = d.State, d.Held
		}
	}
	out.UpdatedAt, out.Status.Message = out.Status.At, strings.Join(told, "; ")
	slices.SortStableFunc(out.Status.Items, func(a, b content.SourceItem) int { return strings.Compare(a.Template.String(), b.Template.String()) })
	return out, err
}

// withDirectory inserts the template directory into sources ordered by name.
func (s *Sources) withDirectory(ctx context.Context, all []Source) ([]Source, error) {
	dir, err := s.directory(ctx)
	switch {
	case errs.Is(err, errs.NotFound):
		return all, nil
	case err != nil:
		return nil, err
	}
	at, _ := slices.BinarySearchFunc(all, dir, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	return slices.Insert(all, at, dir), nil
}

// syncDirectory is Sync for the template directory.
func (s *Sources) syncDirectory(ctx context.Context, by txn.Actor, confirm string) error {
	dir, err := s.directory(ctx)
	if err == nil {
		err = dir.confirms(confirm)
	}
	if err != nil {
		return err
	}
	next := content.DirectorySync{Rev: dir.Rev, Asked: dir.Asked + 1, Confirmed: cmp.Or(confirm, dir.Confirmed)}
	_, err = s.Record(ctx, by, "template-source.sync", "template-source", dir.Name, "", store.Replace(keys.DirectorySync(), next, next.ModRev))
	return err
}
