package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// MaxRow is the maximum number of blobs per request.
const MaxRow = 64

// HeaderParts is the header that describes the parts of an answer with several blobs; see
// FormatParts.
const HeaderParts = "X-Orrery-Parts"

// Part is one blob in an answer with several blobs: its size in the body, and whether it is
// compressed with zstd.
type Part struct {
	Bytes  int64
	Packed bool
}

// FormatParts formats parts for the header: their sizes, separated by commas, with a z
// after those that are compressed.
func FormatParts(parts []Part) string {
	words := make([]string, 0, len(parts))
	for _, p := range parts {
		word := strconv.FormatInt(p.Bytes, 10)
		if p.Packed {
			word += "z"
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

// parseParts parses the result of FormatParts.
func parseParts(header string) ([]Part, error) {
	words := strings.Split(header, ",")
	parts := make([]Part, 0, min(len(words), MaxRow))
	for _, word := range words {
		digits, packed := strings.CutSuffix(word, "z")
		bytes, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || bytes < 0 || len(parts) == MaxRow {
			return nil, fmt.Errorf("%s is %.80q", HeaderParts, header)
		}
		parts = append(parts, Part{Bytes: bytes, Packed: packed})
	}
	return parts, nil
}

// Row opens several blobs, at most MaxRow, as one reader. The replica sends the first one,
// and the following ones up to the first that it would have to fetch. Row returns the
// errors of Blob, and NotFound from an old templatesvc without this request.
func (c *Client) Row(ctx context.Context, sums []string) (io.ReadCloser, error) {
	body, err := c.read(ctx, "/v1/blobs?"+url.Values{"sum": sums}.Encode())
	return body, errs.Wrap("templatesvc.Row", err)
}

// row reads the parts of a body one after the other.
type row struct {
	*body
	left []Part
	part io.Reader // nil between parts
	raw  *io.LimitedReader
}

// Read implements io.Reader.
func (r *row) Read(p []byte) (int, error) {
	for {
		if r.part == nil {
			if len(r.left) == 0 {
				return 0, io.EOF
			}
			if err := r.next(); err != nil {
				return 0, err
			}
		}
		n, err := r.part.Read(p)
		if errors.Is(err, io.EOF) {
			r.part, err = nil, nil
			if r.raw.N > 0 {
				err = errs.WrapAs(errs.Unavailable, "templatesvc.Row", io.ErrUnexpectedEOF)
			}
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next starts the next part.
func (r *row) next() (err error) {
	r.raw = &io.LimitedReader{R: watched{r.body}, N: r.left[0].Bytes}
	r.part = r.raw
	if r.left[0].Packed {
		if r.decoder == nil {
			r.decoder, err = r.client.decoder(r.raw)
		} else {
			err = r.decoder.Reset(r.raw)
		}
		r.part = r.decoder
	}
	r.left = r.left[1:]
	return errs.WrapAs(errs.Unavailable, "templatesvc.Row", err)
}
