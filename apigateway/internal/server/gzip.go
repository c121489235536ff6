package server

import (
	"compress/gzip"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
)

// gzipFrom is the minimum size of a compressed response, in bytes.
const gzipFrom = 1 << 10

// newGzipWriters returns a pool of gzip writers. Each takes a quarter of a megabyte.
func newGzipWriters() *sync.Pool {
	return &sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for invalid levels
		return w
	}}
}

// compress compresses text responses for clients that accept gzip. Streams, compressed responses and
// those that support ranges are sent unchanged. The ETag is kept, so that If-Match accepts it: it
// names the object's revision, not these bytes.
func (s *Server) compress(c *gin.Context) {
	if !takesGzip(every(c, "Accept-Encoding")) {
		return
	}
	if c.Request.Method == http.MethodHead { // same headers as GET
		varies(c.Writer.Header())
		return
	}
	w := &gzipped{ResponseWriter: c.Writer, pool: s.gzipWriters}
	c.Writer = w
	defer func() { c.Writer = w.ResponseWriter }() // also in a panic
	c.Next()
	w.end()
}

// varies adds Accept-Encoding to Vary.
func varies(h http.Header) {
	const on = "Accept-Encoding"
	if !slices.Contains(h.Values("Vary"), on) {
		h.Add("Vary", on)
	}
}

// takesGzip reports whether an Accept-Encoding list accepts gzip.
func takesGzip(accepted string) bool {
	for one := range strings.SplitSeq(accepted, ",") {
		name, parameters, _ := strings.Cut(one, ";")
		if name = strings.TrimSpace(name); !strings.EqualFold(name, "gzip") {
			continue
		}
		weight, given := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(parameters), " ", ""), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		return !given || err == nil && q > 0
	}
	return false
}

// gzipped compresses a response once it is long enough.
type gzipped struct {
	gin.ResponseWriter
	pool *sync.Pool
	// waiting has what was written before the decision.
	waiting []byte
	decided bool
	gz      *gzip.Writer // nil: not compressed
}

// WriteHeader sets Vary on a 304, as on the full response.
func (w *gzipped) WriteHeader(status int) {
	if status == http.StatusNotModified {
		varies(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write compresses, or buffers until the response is long enough.
func (w *gzipped) Write(p []byte) (int, error) {
	if !w.decided && w.text() && len(w.waiting)+len(p) < gzipFrom {
		w.waiting = append(w.waiting, p...)
		return len(p), nil
	}
	if err := w.decide(w.text()); err != nil {
		return 0, err
	}
	if w.gz != nil {
		return w.gz.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// WriteString is Write.
func (w *gzipped) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// text reports whether the response may be compressed.
func (w *gzipped) text() bool {
	h := w.Header()
	if h.Get("Content-Encoding") != "" || h.Get("Accept-Ranges") != "" || h.Get("Content-Range") != "" || w.Status() == http.StatusPartialContent {
		return false
	}
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch media = strings.TrimSpace(media); media {
	case "text/event-stream":
		return false
	case "application/json":
		return true
	}
	return strings.HasPrefix(media, "text/")
}

// decide starts the response, compressed or not, with the buffered part.
func (w *gzipped) decide(pack bool) error {
	if w.decided {
		return nil
	}
	w.decided = true
	into := w.ResponseWriter.Write
	if pack {
		h := w.Header()
		varies(h)
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		w.gz, _ = w.pool.Get().(*gzip.Writer)
		w.gz.Reset(w.ResponseWriter)
		into = w.gz.Write
	}
	if len(w.waiting) == 0 {
		return nil
	}
	_, err := into(w.waiting)
	w.waiting = nil
	return err
}

// end sends the rest. A short response is sent uncompressed.
func (w *gzipped) end() {
	if !w.decided && len(w.waiting) > 0 {
		varies(w.Header())
	}
	_ = w.decide(false) // the caller is gone if this fails
	if w.gz == nil {
		return
	}
	_ = w.gz.Close()
	w.gz.Reset(nil) // a pooled writer must not keep the response
	w.pool.Put(w.gz)
	w.gz = nil
}

// WriteHeaderNow starts a response without a body so far: a stream.
func (w *gzipped) WriteHeaderNow() {
	if len(w.waiting) == 0 {
		_ = w.decide(false)
		w.ResponseWriter.WriteHeaderNow()
	}
}

// Flush sends what was written.
func (w *gzipped) Flush() {
	_ = w.decide(false)
	if w.gz != nil {
		_ = w.gz.Flush()
	}
	w.ResponseWriter.Flush()
}

// Written reports whether a handler has answered.
func (w *gzipped) Written() bool { return len(w.waiting) > 0 || w.ResponseWriter.Written() }

// Unwrap is for http.ResponseController.
func (w *gzipped) Unwrap() http.ResponseWriter { return w.ResponseWriter }
