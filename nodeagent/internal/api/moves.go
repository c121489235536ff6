package api

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Moves serves the directories of instances that move to other nodes, and protects them.
type Moves interface {
	// List writes the list of a directory; see client.MovedLine. It calls flush when what it has
	// written shall be sent at once. Conflict if the move is not in that step.
	List(ctx context.Context, id fleet.InstanceID, move string, w io.Writer, flush func() error) error
	// Open opens a file from an offset on. The caller closes it. List and Open return Denied to every
	// agent but the target's.
	Open(ctx context.Context, id fleet.InstanceID, move, path string, offset int64) (io.ReadCloser, error)
	// Editable is Conflict while a change of the instance's files would be lost by a move.
	Editable(id fleet.InstanceID, generation int64) error
}

// HandleMoves adds the routes for moves, without authentication.
func HandleMoves(mux *http.ServeMux, moves Moves) {
	mux.Handle("GET /v1/moves/{id}/list", listMoved(moves))
	mux.Handle("GET /v1/moves/{id}/file", readMoved(moves))
}

// listMoved serves the list of a directory.
func listMoved(moves Moves) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &trackedWriter{to: w}
		err := moves.List(r.Context(), instanceID(r), r.URL.Query().Get("move"), out, http.NewResponseController(w).Flush)
		switch {
		case err == nil:
		case !out.yet:
			encodeError(w, err)
		default: // the client sees that the end is missing
			panic(http.ErrAbortHandler)
		}
	})
}

// readMoved serves a file of a directory.
func readMoved(moves Moves) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		offset, err := strconv.ParseInt(q.Get("offset"), 10, 64)
		if err != nil || offset < 0 {
			encodeError(w, errs.Field("offset", "must be a number of bytes, not negative"))
			return
		}
		f, err := moves.Open(r.Context(), instanceID(r), q.Get("move"), q.Get("path"), offset)
		if err != nil {
			encodeError(w, err)
			return
		}
		defer f.Close()
		if _, err := io.Copy(w, f); err != nil {
			panic(http.ErrAbortHandler) // the client sees that bytes are missing
		}
	})
}
