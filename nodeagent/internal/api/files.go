package api

import (
	"context"
	"net/http"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
)

const (
	// defaultFile is the default size of the part of a file, in bytes.
	defaultFile = 64 << 10
	// maxFileReaders bounds concurrent reads of files, which are held in memory.
	maxFileReaders = 4
)

type filesRequest struct {
	id fleet.InstanceID
	files.Query
}

func listFiles(all Instances, turns chan struct{}) endpoint.Endpoint {
	return ofFiles(all, turns, func(at files.Viewer, q files.Query) (any, error) {
		l, err := at.List(q.Path)
		out := client.Directory{Entries: make([]client.FileEntry, 0, len(l.Entries)), More: l.More}
		for _, e := range l.Entries {
			out.Entries = append(out.Entries, client.FileEntry{Name: e.Name, Dir: e.Dir, Other: e.Other, Size: e.Size, ModifiedAt: e.ModifiedAt})
		}
		return out, err
	})
}

func readFile(all Instances, turns chan struct{}) endpoint.Endpoint {
	return ofFiles(all, turns, func(at files.Viewer, q files.Query) (any, error) {
		c, err := at.Read(q)
		return client.FileContent{Text: c.Text, Size: c.Size, Cut: c.Cut, Binary: c.Binary}, err
	})
}

// ofFiles calls do with an instance's directory, limited by turns.
func ofFiles(all Instances, turns chan struct{}, do func(files.Viewer, files.Query) (any, error)) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		r := request.(filesRequest)
		i, err := all.Instance(r.id)
		if err != nil {
			return nil, err
		}
		at, err := i.Files(ctx)
		if err != nil {
			return nil, err
		}
		if err := acquire(ctx, turns); err != nil {
			return nil, err
		}
		defer release(turns)
		return do(at, r.Query)
	}
}

func decodeFiles(_ context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	most, err := number(q.Get("maxBytes"), "maxBytes", defaultFile)
	if err != nil {
		return nil, err
	}
	tail := q.Get("tail")
	if tail != "" && tail != "true" && tail != "false" {
		return nil, errs.Field("tail", "must be true or false")
	}
	return filesRequest{instanceID(r), files.Query{Path: q.Get("path"), Bytes: int(min(most, files.MaxBytes)), Tail: tail == "true"}}, nil
}
