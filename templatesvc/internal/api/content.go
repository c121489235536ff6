package api

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// content returns the endpoints that read manifests, blobs and artifacts, or report damage.
func (s *Server) content() map[string]endpoint {
	return map[string]endpoint{
		"GET /v1/manifests/{digest}": func(r *http.Request) (result, error) {
			return writeManifest(s.Versions.ManifestBody(r.Context(), r.PathValue("digest")))
		},
		"GET /v1/blobs/{sum}": func(r *http.Request) (result, error) {
			b, err := s.Versions.Blob(r.Context(), r.PathValue("sum"))
			return writeBlob(r, b), err
		},
		"GET /v1/blobs": func(r *http.Request) (result, error) {
			sums := r.URL.Query()["sum"]
			if len(sums) > client.MaxRow {
				return nil, errs.New(errs.Invalid, "the request asks for %d blobs, at most %d are allowed", len(sums), client.MaxRow)
			}
			return writeRow(s.Versions.Row(r.Context(), sums))
		},
		"POST /v1/blobs/{sum}/suspect": func(r *http.Request) (result, error) {
			return writeDone(s.Versions.Blobs().Suspect(r.Context(), r.PathValue("sum")))
		},
		"GET /v1/artifacts/{sum}": func(r *http.Request) (result, error) {
			return writeArtifact(s.Artifacts.Get(r.Context(), r.PathValue("sum")))
		},
	}
}

// replicas returns the endpoints that the replicas of the service call.
func (s *Server) replicas() map[string]endpoint {
	return map[string]endpoint{
		// A replica looks only in its own store. Otherwise two replicas could ask each other for ever.
		"GET /v1/held/blobs/{sum}": func(r *http.Request) (result, error) {
			b, err := s.Versions.Held(r.Context(), r.PathValue("sum"))
			return writeBlob(r, b), err
		},
		"GET /v1/held/recipes/{sum}": func(r *http.Request) (result, error) {
			return writeJSON(s.Versions.Blobs().RecipeHere(r.Context(), r.PathValue("sum")))
		},
		"POST /v1/replicate": func(r *http.Request) (result, error) {
			id, err := s.Mirror.Serve(r.Context(), r.URL.Query().Get("digest"))
			return writeJSON(client.Replicated{Store: id}, err)
		},
	}
}

// upkeep returns the endpoints that change what is stored besides templates.
func (s *Server) upkeep() map[string]endpoint {
	return map[string]endpoint{
		"POST /v1/collect": func(r *http.Request) (result, error) { return writeJSON(s.Keeper.Now(r.Context())) },
		"POST /v1/artifacts": func(r *http.Request) (result, error) {
			var body client.PinRequest
			if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
				return nil, err
			}
			return writeJSON(s.Artifacts.Pin(r.Context(), body.URL))
		},
	}
}

func writeManifest(body []byte, err error) (result, error) {
	return func(w http.ResponseWriter) error {
		w.Header().Set("Content-Type", "application/json")
		_, err := w.Write(body)
		return err
	}, err
}

// writeBlob serves a blob as it is stored, and decompresses it if the client does not
// accept zstd. It never compresses. Uncompressed blobs support range requests.
func writeBlob(r *http.Request, b *versions.Blob) result {
	return func(w http.ResponseWriter) error {
		defer b.Close()
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set(client.HeaderSize, strconv.FormatInt(b.Size, 10))
		h.Set("Cache-Control", "private, immutable, max-age=31536000")
		switch {
		case b.Stored == nil:
			return writeRaw(w, b, b.Joined)
		case !b.Stored.Packed:
			h.Set("ETag", strconv.Quote(b.Sum))
			http.ServeContent(w, r, "", time.Time{}, b.Stored.File)
			return nil
		case strings.Contains(r.Header.Get("Accept-Encoding"), "zstd"):
			return writeFile(w, b.Stored.File, "ETag", strconv.Quote(b.Sum+".zst"), "Content-Encoding", "zstd")
		}
		dec, err := zstd.NewReader(b.Stored.File, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return errs.WrapAs(errs.Internal, "api.writeBlob", err)
		}
		defer dec.Close()
		return writeRaw(w, b, dec)
	}
}

func writeRaw(w http.ResponseWriter, b *versions.Blob, r io.Reader) error {
	w.Header().Set("ETag", strconv.Quote(b.Sum))
	w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
	_, err := io.Copy(w, r)
	return err
}

// writeFile sends a file as it is stored, with headers given as names and values.
func writeFile(w http.ResponseWriter, f *os.File, headers ...string) error {
	fi, err := f.Stat()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "api.writeFile", err)
	}
	for h := range slices.Chunk(headers, 2) {
		w.Header().Set(h[0], h[1])
	}
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size(), 10))
	_, err = io.Copy(w, f)
	return err
}

// writeArtifact streams a file without compression, because artifacts are already
// compressed.
func writeArtifact(f *os.File, err error) (result, error) {
	return func(w http.ResponseWriter) error {
		defer f.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		return writeFile(w, f)
	}, err
}

// writeRow sends blobs one after the other, each as it is stored. It ignores
// Accept-Encoding, because clients of this request support zstd.
func writeRow(row versions.Row, err error) (result, error) {
	return func(w http.ResponseWriter) error {
		defer row.Close()
		var size int64
		parts := make([]client.Part, 0, len(row))
		for _, b := range row {
			fi, err := b.Stat()
			if err != nil {
				return errs.WrapAs(errs.Unavailable, "api.writeRow", err)
			}
			size += fi.Size()
			parts = append(parts, client.Part{Bytes: fi.Size(), Packed: b.Packed})
		}
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.FormatInt(size, 10))
		h.Set(client.HeaderParts, client.FormatParts(parts))
		for _, b := range row {
			if _, err := io.Copy(w, b.File); err != nil { // uses sendfile where possible
				return err
			}
		}
		return nil
	}, err
}
