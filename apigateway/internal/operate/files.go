package operate

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// MaxFile is the most of a file of an instance that is shown at once, in bytes.
const MaxFile = 1 << 20

// Files lists a directory of an instance, "" being its own. NotFound when there is no such
// instance, Unavailable when its node's agent does not answer, Conflict when its secrets are
// not known. With the field path: NotFound, Invalid when it leads out, Conflict when it is no
// directory.
func (o *Operations) Files(ctx context.Context, ref, path string) (client.Directory, error) {
	i, err := o.placed(ref)
	if err != nil {
		return client.Directory{}, err
	}
	return o.cfg.Agents.Files(ctx, i, path)
}

// File shows at most so many bytes of the beginning of a file of an instance, or with tail of
// its end. Errors as of Files; Conflict with the field path when it is no plain file.
func (o *Operations) File(ctx context.Context, ref, path string, maxBytes int, tail bool) (client.FileContent, error) {
	i, err := o.placed(ref)
	if err != nil {
		return client.FileContent{}, err
	}
	return o.cfg.Agents.File(ctx, i, path, min(max(maxBytes, 1), MaxFile), tail)
}

// placed is an instance that has a node; others have no files.
func (o *Operations) placed(ref string) (*fleet.Instance, error) {
	i, err := o.Find(ref)
	if err == nil && i.Node() == "" {
		err = &errs.Error{Kind: errs.NotFound, Field: "path", Message: "instance " + i.Intent.Name + " has no files before it was placed on a node"}
	}
	return i, err
}
