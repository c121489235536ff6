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

// MaxRow is how many blobs may be asked for at once.
const MaxRow = 64

// HeaderParts says what the body of an answer with several blobs is made of; see FormatParts.
const HeaderParts = "X-Orrery-Parts"

// Part is one blob in an answer with several: so many bytes, compressed by zstd or not.
type Part struct {
	Bytes  int64
	Packed bool
}

// FormatParts writes parts as a header: their bytes with commas between them, a z after
// those that are compressed.
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

// parseParts reads what FormatParts wrote.
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

// Row opens several blobs, MaxRow at most, as one reader: the content of the first and, up
// to one that the replica would have to fetch itself, of those after it. Otherwise as
// Blob; NotFound also from a templatesvc that does not know how to send several.
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

// Read reads on.
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
				err = errs.As(errs.Unavailable, "templatesvc.Row", io.ErrUnexpectedEOF)
			}
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next begins with the next part.
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
	return errs.As(errs.Unavailable, "templatesvc.Row", err)
}
