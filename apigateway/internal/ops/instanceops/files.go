package instanceops

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
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

// WriteFile writes a file of a static instance and audits it by path and bytes. Errors are those of
// Files and client.WriteFile, a MovedError when its conditions do not hold, and Conflict while the
// instance moves to another node or has its data there.
func (o *Instances) WriteFile(ctx context.Context, by txn.Actor, ref string, w client.FileWrite, body io.Reader) (done client.FileChange, err error) {
	i, err := o.editable(ref)
	if err != nil {
		return done, err
	}
	check := w
	check.DryRun = true
	// Refuse before the body is sent, which may be large. A refused request is not audited.
	if done, err = o.agents.WriteFile(ctx, i, check, strings.NewReader("")); err != nil || w.DryRun {
		return done, conditional(err)
	}
	err = o.OutsideNoting(ctx, by, fileEntry(i, "write", w.Path), func(said *txn.Entry) (err error) {
		if done, err = o.agents.WriteFile(ctx, i, w, body); err == nil {
			said.Details = txn.Clip(fmt.Sprintf("%s (%d bytes)", done.Path, done.Size))
		}
		return err
	})
	return done, conditional(err)
}

// EditFile makes a directory, or renames, deletes or restores a file of a static instance, and audits
// it by path. Errors are those of WriteFile.
func (o *Instances) EditFile(ctx context.Context, by txn.Actor, ref string, e client.FileEdit) (done client.FileChange, err error) {
	i, err := o.editable(ref)
	if err != nil {
		return done, err
	}
	check := e
	check.DryRun = true
	if done, err = o.agents.EditFile(ctx, i, check); err != nil || e.DryRun { // a refused request is not audited
		return done, conditional(err)
	}
	about := e.Path
	switch e.Op {
	case client.FileRename:
		about += " to " + e.To
	case client.FileRestore:
		about = "version " + e.Version
	}
	err = o.OutsideNoting(ctx, by, fileEntry(i, e.Op, about), func(said *txn.Entry) (err error) {
		if done, err = o.agents.EditFile(ctx, i, e); err == nil && e.Op == client.FileRestore {
			said.Details = txn.Clip(fmt.Sprintf("%s (%d bytes, version %s)", done.Path, done.Size, e.Version))
		}
		return err
	})
	return done, conditional(err)
}

// FileVersions lists the kept previous contents of a path of a static instance. Errors are those of
// Files.
func (o *Instances) FileVersions(ctx context.Context, ref, path string) (client.FileVersions, error) {
	i, err := o.placed(ref)
	if err != nil {
		return client.FileVersions{}, err
	}
	return o.agents.FileVersions(ctx, i, path)
}

func fileEntry(i *fleet.Instance, verb, details string) txn.Entry {
	return txn.Entry{Action: "instance.file." + verb, Resource: "instance", ID: string(i.Intent.ID), Details: txn.Clip(details)}
}

// conditional turns the error of a condition that does not hold into a MovedError.
func conditional(err error) error {
	if errs.FieldOf(err) == client.Stale {
		return &txn.MovedError{What: errs.MessageOf(err)}
	}
	return err
}

// editable returns an instance whose files may be changed. During a move, and until the next start
// after it, a change would be made to files that the move leaves behind.
func (o *Instances) editable(ref string) (*fleet.Instance, error) {
	i, err := o.placed(ref)
	if err == nil {
		err = unmoved(o.Snapshot(), i)
	}
	return i, err
}

// unmoved returns Conflict unless the data of an instance is on the node of its placement, and stays there.
func unmoved(s *view.Snapshot, i *fleet.Instance) error {
	if err := moving(s, i); err != nil {
		return err
	}
	if to := i.Moved(); to != nil {
		return errs.New(errs.Conflict, "instance %s was moved: start it first, because its files are on node %s", i.Intent.Name, to.Node)
	}
	return nil
}

// placed returns an instance that has a node. Others have no files.
func (o *Instances) placed(ref string) (*fleet.Instance, error) {
	i, err := o.Find(ref)
	if err == nil && i.Node() == "" {
		err = &errs.Error{Kind: errs.NotFound, Field: "path", Message: "does not exist: instance " + i.Intent.Name + " has no files until it is placed on a node"}
	}
	return i, err
}
