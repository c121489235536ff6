package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	kithttp "github.com/go-kit/kit/transport/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/api/endpoint"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// mountTrees adds the routes that read versions.
func mountTrees(mux *http.ServeMux, t endpoint.Trees, opts []kithttp.ServerOption) {
	mux.Handle("GET /v1/trees/{digest}", kithttp.NewServer(t.List, readTree, writeJSON, opts...))
	mux.Handle("GET /v1/trees/{digest}/file", kithttp.NewServer(t.File, readTree, writeFile, opts...))
	mux.Handle("GET /v1/trees/{digest}/search", kithttp.NewServer(t.Search, readTree, writeJSON, opts...))
	mux.Handle("GET /v1/trees/{digest}/placeholders", kithttp.NewServer(t.Placeholders, readTree, writeJSON, opts...))
	mux.Handle("GET /v1/trees/{digest}/archive", kithttp.NewServer(t.Archive, readTree, writeArchive, opts...))
}

func readTree(_ context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	out := endpoint.TreeRequest{Digest: r.PathValue("digest"), Path: q.Get("path"), Deep: q.Get("deep") == "true", Text: q.Get("q"), Format: archive.Format(q.Get("format"))}
	if q.Has("shown") {
		out.Shown = new(content.Visibility(q.Get("shown")))
	}
	if most := q.Get("max"); most != "" {
		n, err := strconv.Atoi(most)
		if err != nil {
			return nil, &errs.Error{Kind: errs.Malformed, Field: "max", Message: "must be a number"}
		}
		out.Most = n
	}
	return out, nil
}

// writeFile streams a file without compression.
func writeFile(_ context.Context, w http.ResponseWriter, response any) error {
	f, _ := response.(endpoint.OpenFile)
	defer f.Content.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(f.Entry.Size, 10))
	h.Set("ETag", strconv.Quote(f.Entry.SHA256))
	h.Set(client.HeaderMode, strconv.FormatUint(uint64(f.Entry.Mode), 8))
	if _, err := io.Copy(w, f.Content); err != nil {
		panic(http.ErrAbortHandler) // close the connection, so that the client notices that the file is incomplete
	}
	return nil
}

// withheld is how many bytes of an archive are buffered before the answer begins. Errors up
// to there become a proper error answer.
const withheld = 256 << 10

// writeArchive streams an archive.
func writeArchive(_ context.Context, w http.ResponseWriter, response any) error {
	pack, _ := response.(func(io.Writer) error)
	sent := &sending{ResponseWriter: w}
	out := bufio.NewWriterSize(sent, withheld)
	err := pack(out)
	if err != nil && !sent.begun {
		return err
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		panic(http.ErrAbortHandler) // as in writeFile
	}
	return nil
}

// sending records whether the answer has begun.
type sending struct {
	http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (s *sending) Write(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.Header().Set("Content-Type", "application/octet-stream")
	}
	return s.ResponseWriter.Write(b)
}
