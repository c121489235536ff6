package api

import (
	"context"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

const (
	// defaultFile is the default size of the part of a file, in bytes.
	defaultFile = 64 << 10
	// maxFileReaders bounds concurrent reads of files, which are held in memory.
	maxFileReaders = 4
)

func listFiles(all Instances, turns chan struct{}) http.Handler {
	return serveFiles(all, turns, func(v files.Viewer, q files.Query) (any, error) { return v.List(q.Path) })
}

func readFile(all Instances, turns chan struct{}) http.Handler {
	return serveFiles(all, turns, func(v files.Viewer, q files.Query) (any, error) { return v.Read(q) })
}

// serveFiles serves calls about an instance's directory, limited by turns.
func serveFiles(all Instances, turns chan struct{}, do func(files.Viewer, files.Query) (any, error)) http.Handler {
	return serveInstance(all, parseFiles, func(ctx context.Context, i *driver.Instance, q files.Query) (any, error) {
		viewer, err := i.Files(ctx)
		if err != nil {
			return nil, err
		}
		if err := acquire(ctx, turns); err != nil {
			return nil, err
		}
		defer release(turns)
		return do(viewer, q)
	})
}

func parseFiles(r *http.Request) (files.Query, error) {
	q := r.URL.Query()
	most, err := number(q.Get("maxBytes"), "maxBytes", defaultFile)
	if err != nil {
		return files.Query{}, err
	}
	tail := q.Get("tail")
	if tail != "" && tail != "true" && tail != "false" {
		return files.Query{}, errs.Field("tail", "must be true or false")
	}
	return files.Query{Path: q.Get("path"), Bytes: int(min(most, files.MaxBytes)), Tail: tail == "true"}, nil
}
