package instanceops

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// MaxFile bounds the bytes of an instance's file in one answer.
const MaxFile = 1 << 20

// Files lists a directory of an instance; "" is its working directory. NotFound when the instance
// does not exist, Unavailable when its node's agent does not answer, Conflict when its secrets are
// unknown and so cannot be hidden. Errors with the field path: NotFound, Invalid when the path
// leads outside, Conflict when it is no directory.
func (o *Instances) Files(ctx context.Context, ref, path string) (client.Directory, error) {
	i, err := o.placed(ref)
	if err != nil {
		return client.Directory{}, err
	}
	return o.agents.Files(ctx, i, path)
}

// File returns at most maxBytes from the start of a file of an instance, or with tail from its end.
// Errors are those of Files, and Conflict with the field path when it is no regular file.
func (o *Instances) File(ctx context.Context, ref, path string, maxBytes int, tail bool) (client.FileContent, error) {
	i, err := o.placed(ref)
	if err != nil {
		return client.FileContent{}, err
	}
	return o.agents.File(ctx, i, path, min(max(maxBytes, 1), MaxFile), tail)
}

// placed returns an instance that has a node. Others have no files.
func (o *Instances) placed(ref string) (*fleet.Instance, error) {
	i, err := o.Find(ref)
	if err == nil && i.Node() == "" {
		err = &errs.Error{Kind: errs.NotFound, Field: "path", Message: "instance " + i.Intent.Name + " has no files before it was placed on a node"}
	}
	return i, err
}
