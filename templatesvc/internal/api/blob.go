package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// requestKey is the context key of the request, whose headers the response writers need.
type requestKey struct{}

func keepRequest(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// writeBlob serves a blob as it is stored, and decompresses it if the client does not
// accept zstd. It never compresses. Uncompressed blobs support range requests.
func writeBlob(ctx context.Context, w http.ResponseWriter, response any) error {
	b, _ := response.(*versions.Blob)
	defer b.Close()
	r, _ := ctx.Value(requestKey{}).(*http.Request)
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
		return writePacked(w, b)
	}
	dec, err := zstd.NewReader(b.Stored.File, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return errs.WrapAs(errs.Internal, "transport.writeBlob", err)
	}
	defer dec.Close()
	return writeRaw(w, b, dec)
}

// writePacked sends a compressed file as it is stored.
func writePacked(w http.ResponseWriter, b *versions.Blob) error {
	fi, err := b.Stored.Stat()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "transport.writeBlob", err)
	}
	w.Header().Set("ETag", strconv.Quote(b.Sum+".zst"))
	w.Header().Set("Content-Encoding", "zstd")
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size(), 10))
	_, err = io.Copy(w, b.Stored.File)
	return err
}

func writeRaw(w http.ResponseWriter, b *versions.Blob, r io.Reader) error {
	w.Header().Set("ETag", strconv.Quote(b.Sum))
	w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
	_, err := io.Copy(w, r)
	return err
}

func readSums(_ context.Context, r *http.Request) (any, error) {
	sums := r.URL.Query()["sum"]
	if len(sums) > client.MaxRow {
		return nil, errs.New(errs.Invalid, "%d blobs are asked for at once, %d is the most", len(sums), client.MaxRow)
	}
	return sums, nil
}

// writeRow sends blobs one after the other, each as it is stored. It ignores
// Accept-Encoding, because clients of this request support zstd.
func writeRow(_ context.Context, w http.ResponseWriter, response any) error {
	row, _ := response.(versions.Row)
	defer row.Close()
	var size int64
	parts := make([]client.Part, 0, len(row))
	for _, b := range row {
		fi, err := b.Stat()
		if err != nil {
			return errs.WrapAs(errs.Unavailable, "transport.writeRow", err)
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
}
