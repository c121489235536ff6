package api

import (
	"context"
	"io"
	"net/http"
	"os"
	"strconv"

	kithttp "github.com/go-kit/kit/transport/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/api/endpoint"
)

func mountArtifacts(mux *http.ServeMux, set endpoint.Artifacts, opts []kithttp.ServerOption) {
	mux.Handle("GET /v1/artifacts/{sum}", kithttp.NewServer(set.Artifact, pathValue("sum"), writeArtifact, opts...))
	mux.Handle("POST /v1/artifacts", kithttp.NewServer(set.Pin, readPin, writeJSON, opts...))
}

func readPin(_ context.Context, r *http.Request) (any, error) {
	var body client.PinRequest
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	return body.URL, nil
}

// writeArtifact streams a file without compression, because artifacts are already
// compressed.
func writeArtifact(_ context.Context, w http.ResponseWriter, response any) error {
	f, _ := response.(*os.File)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "transport.writeArtifact", err)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size(), 10))
	_, err = io.Copy(w, f)
	return err
}
