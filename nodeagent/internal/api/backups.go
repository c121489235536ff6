package api

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/backup"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ansi"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

// maxWithin bounds how long one call waits for the end of a backup.
const maxWithin = 30 * time.Second

// handleBackups adds the routes for backups.
func handleBackups(mux *http.ServeMux, all Instances, moves Moves, keeper *backup.Keeper) {
	type call func(ctx context.Context, p backup.Place, r *http.Request) (any, error)
	handle := func(pattern string, do call) {
		mux.Handle(pattern, Serve(func(r *http.Request) (any, error) {
			i, err := all.Instance(instanceID(r))
			if err != nil {
				return nil, err
			}
			p, err := BackupPlace(i, all, moves)
			if err != nil {
				return nil, err
			}
			return do(r.Context(), p, r)
		}))
	}
	dry := func(r *http.Request) bool { return r.URL.Query().Get("dryRun") == "true" }
	handle("GET /v1/instances/{id}/backups", func(_ context.Context, p backup.Place, _ *http.Request) (any, error) { return keeper.List(p) })
	handle("POST /v1/instances/{id}/backups", func(_ context.Context, p backup.Place, r *http.Request) (any, error) {
		var n client.NewBackup
		if err := wire.DecodeJSON(r.Body, 0, &n); err != nil {
			return nil, err
		}
		return keeper.Create(p, n)
	})
	handle("GET /v1/instances/{id}/backups/{backup}", func(ctx context.Context, p backup.Place, r *http.Request) (any, error) {
		millis, err := number(r.URL.Query().Get("within"), "within", 0)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, min(time.Duration(millis)*time.Millisecond, maxWithin))
		defer cancel()
		return keeper.Get(ctx, p, r.PathValue("backup"))
	})
	handle("POST /v1/instances/{id}/backups/{backup}/restore", func(_ context.Context, p backup.Place, r *http.Request) (any, error) {
		return keeper.Restore(p, r.PathValue("backup"), dry(r))
	})
	handle("DELETE /v1/instances/{id}/backups/{backup}", func(_ context.Context, p backup.Place, r *http.Request) (any, error) {
		return keeper.Delete(p, r.PathValue("backup"), dry(r))
	})
}

// BackupPlace is the directory of a static instance, for backups. Errors are those of driver.Static.
func BackupPlace(i *driver.Instance, all Instances, moves Moves) (backup.Place, error) {
	at, err := i.Static()
	if err != nil {
		return backup.Place{}, err
	}
	return backup.Place{
		Instance: at.Instance, Generation: at.Generation, Group: at.Group, Name: at.Name,
		Console: serverConsole{i, all.LogPath(at.Instance), all.Logs()},
		Allowed: func() error {
			if i.Live().Status.State == fleet.Preparing {
				return errs.New(errs.Unavailable, "the directory of instance %s is being prepared: try again when it has started", at.Name)
			}
			return moves.Editable(at.Instance, at.Generation)
		},
	}, nil
}

// serverConsole is the console of an instance.
type serverConsole struct {
	*driver.Instance
	path string
	logs *console.Follower
}

// Running implements backup.Console.
func (c serverConsole) Running() bool { return c.Live().Status.State.Running() }

// Mark implements backup.Console.
func (c serverConsole) Mark() (int64, error) { return console.Start(context.Background(), c.path, 0) }

// Await implements backup.Console.
func (c serverConsole) Await(ctx context.Context, offset int64, text string) error {
	watch := c.logs.Follow(c.path)
	defer watch.Close()
	viewer := console.NewViewer(c.path, offset)
	defer viewer.Close()
	for {
		changed := watch.Changed()
		ended := !c.Running()
		frame, err := viewer.Next(ended)
		switch {
		case err != nil:
			return err
		case contains(frame.Data, text):
			return nil
		case frame.Next > frame.From:
			continue
		case ended:
			return errs.New(errs.Conflict, "the server ended while it was asked to write its data")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// contains reports whether a line of an output contains a text, without the colours.
func contains(data []byte, text string) bool {
	for line := range bytes.Lines(data) {
		if strings.Contains(ansi.Strip(string(line)), text) {
			return true
		}
	}
	return false
}
