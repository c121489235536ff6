package api

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// trees returns the endpoints that read the files of versions.
func (s *Server) trees() map[string]endpoint {
	const one = "GET /v1/trees/{digest}"
	return map[string]endpoint{
		one: func(r *http.Request) (result, error) {
			q := r.URL.Query()
			list, err := s.Reader.List(r.Context(), r.PathValue("digest"), q.Get("path"), q.Get("deep") == "true")
			for i := range list {
				list[i].Chunks = nil // large files may have thousands
			}
			return writeJSON(list, err)
		},
		one + "/file": func(r *http.Request) (result, error) {
			return writeContent(s.Reader.Open(r.Context(), r.PathValue("digest"), r.URL.Query().Get("path")))
		},
		one + "/search": func(r *http.Request) (result, error) {
			q := r.URL.Query()
			most, err := 0, error(nil)
			if text := q.Get("max"); text != "" {
				if most, err = strconv.Atoi(text); err != nil {
					return nil, &errs.Error{Kind: errs.Malformed, Field: "max", Message: "must be a number"}
				}
			}
			return writeJSON(s.Reader.Search(r.Context(), r.PathValue("digest"), q.Get("q"), most))
		},
		one + "/placeholders": func(r *http.Request) (result, error) {
			return writeJSON(s.Reader.Placeholders(r.Context(), r.PathValue("digest")))
		},
		one + "/archive": func(r *http.Request) (result, error) {
			q := r.URL.Query()
			var shown *content.Visibility
			if q.Has("shown") {
				shown = new(content.Visibility(q.Get("shown")))
			}
			return writeArchive(s.Reader.Archive(r.Context(), r.PathValue("digest"), q.Get("path"), archive.Format(q.Get("format")), shown))
		},
	}
}

// writeContent streams a file of a version without compression.
func writeContent(e content.ManifestEntry, body io.ReadCloser, err error) (result, error) {
	return func(w http.ResponseWriter) error {
		defer body.Close()
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.FormatInt(e.Size, 10))
		h.Set("ETag", strconv.Quote(e.SHA256))
		h.Set(client.HeaderMode, strconv.FormatUint(uint64(e.Mode), 8))
		if _, err := io.Copy(w, body); err != nil {
			panic(http.ErrAbortHandler) // close the connection, so that the client notices that the file is incomplete
		}
		return nil
	}, err
}

// withheld is how many bytes of an archive are buffered before the answer begins. Errors up
// to there become a proper error answer.
const withheld = 256 << 10

// writeArchive streams an archive.
func writeArchive(pack func(io.Writer) error, err error) (result, error) {
	return func(w http.ResponseWriter) error {
		sent := &sending{ResponseWriter: w}
		out := bufio.NewWriterSize(sent, withheld)
		err := pack(out)
		if err != nil && !sent.begun {
			return err
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			panic(http.ErrAbortHandler) // as in writeContent
		}
		return nil
	}, err
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
