package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/fileedit"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

const (
	// maxFileWriters bounds concurrent changes of files, which use the disk.
	maxFileWriters = 4
	// uploadStall is how long a body may make no progress.
	uploadStall = 30 * time.Second
)

// writeFile replaces or creates a file with the body of the request.
func writeFile(all Instances, moves Moves, editor *fileedit.Editor, turns chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := write(all, moves, editor, turns, w, r)
		if err == nil {
			err = encode(w, done)
		}
		if err != nil {
			encodeError(w, err)
		}
	})
}

func write(all Instances, moves Moves, editor *fileedit.Editor, turns chan struct{}, w http.ResponseWriter, r *http.Request) (client.FileChange, error) {
	ctx, q := r.Context(), r.URL.Query()
	i, err := all.Instance(instanceID(r))
	if err != nil {
		return client.FileChange{}, err
	}
	place, err := editable(ctx, i, moves)
	if err != nil {
		return client.FileChange{}, err
	}
	if err := acquire(ctx, turns); err != nil {
		return client.FileChange{}, err
	}
	defer release(turns)
	return editor.Write(ctx, place, client.FileWrite{
		Path: q.Get("path"), IfMatch: strings.Trim(r.Header.Get("If-Match"), `"`), Only: q.Get("only") == "true",
		Discard: q.Get("discard") == "true", DryRun: q.Get("dryRun") == "true",
	}, &slowBody{r.Body, http.NewResponseController(w)})
}

// slowBody extends the read deadline while data arrives.
type slowBody struct {
	io.Reader
	rc *http.ResponseController
}

func (b *slowBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(uploadStall))
	n, err := b.Reader.Read(p)
	if err != nil {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// editable gives access to change the files of an instance, except while that is a Conflict with a move.
func editable(ctx context.Context, i *driver.Instance, moves Moves) (fileedit.Place, error) {
	place, err := i.Editable(ctx)
	place.Allowed = func() error { return moves.Editable(place.Instance, place.Generation) }
	return place, err
}

// editFiles performs one operation on the files of an instance.
func editFiles(all Instances, moves Moves, editor *fileedit.Editor, turns chan struct{}) http.Handler {
	return serveInstance(all, parseEdit, func(ctx context.Context, i *driver.Instance, e client.FileEdit) (any, error) {
		place, err := editable(ctx, i, moves)
		if err != nil {
			return nil, err
		}
		if err := acquire(ctx, turns); err != nil {
			return nil, err
		}
		defer release(turns)
		return editor.Edit(ctx, place, e)
	})
}

func parseEdit(r *http.Request) (e client.FileEdit, err error) {
	if err := wire.DecodeJSON(r.Body, 0, &e); err != nil {
		return e, err
	}
	if e.Op == "" {
		return e, errs.Field("op", "is required")
	}
	return e, nil
}

// listVersions lists the kept previous contents of a path.
func listVersions(all Instances, editor *fileedit.Editor) http.Handler {
	return serveInstance(all, func(r *http.Request) (string, error) { return r.URL.Query().Get("path"), nil },
		func(ctx context.Context, i *driver.Instance, path string) (any, error) {
			place, err := i.Editable(ctx)
			if err != nil {
				return nil, err
			}
			return editor.Versions(place, path)
		})
}
