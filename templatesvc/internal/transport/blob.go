package transport

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
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// requestKey is where the request travels to the writer of the response, which answers
// as its headers ask.
type requestKey struct{}

func keepRequest(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// writeBlob serves a blob as it is stored, compressed if it lies so and that is
// accepted: nothing is compressed for one caller. What is stored raw may be had in part.
func writeBlob(ctx context.Context, w http.ResponseWriter, response any) error {
	b, _ := response.(*template.Blob)
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
		return errs.As(errs.Internal, "transport.writeBlob", err)
	}
	defer dec.Close()
	return writeRaw(w, b, dec)
}

// writePacked sends a compressed file as it is.
func writePacked(w http.ResponseWriter, b *template.Blob) error {
	fi, err := b.Stored.Stat()
	if err != nil {
		return errs.As(errs.Unavailable, "transport.writeBlob", err)
	}
	w.Header().Set("ETag", strconv.Quote(b.Sum+".zst"))
	w.Header().Set("Content-Encoding", "zstd")
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size(), 10))
	_, err = io.Copy(w, b.Stored.File)
	return err
}

func writeRaw(w http.ResponseWriter, b *template.Blob, r io.Reader) error {
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

// writeRow sends blobs one after the other, each as it is stored. What is compressed is
// sent so whatever the caller accepts: who asks for several knows of it.
func writeRow(_ context.Context, w http.ResponseWriter, response any) error {
	row, _ := response.(template.Row)
	defer row.Close()
	var size int64
	parts := make([]client.Part, 0, len(row))
	for _, b := range row {
		fi, err := b.Stat()
		if err != nil {
			return errs.As(errs.Unavailable, "transport.writeRow", err)
		}
		size += fi.Size()
		parts = append(parts, client.Part{Bytes: fi.Size(), Packed: b.Packed})
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set(client.HeaderParts, client.FormatParts(parts))
	for _, b := range row {
		if _, err := io.Copy(w, b.File); err != nil { // by the kernel, as long as w can
			return err
		}
	}
	return nil
}
