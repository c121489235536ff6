package archive

import (
	"context"
	"errors"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
)

// input reads the source of the archive. It counts bytes, stops with its context, and
// remembers an error of the source, because decompressors may replace that error.
type input struct {
	ctx  context.Context
	r    io.Reader
	head []byte // read by peek, but not yet by Read
	read int64  // bytes returned so far
	left int64  // bytes that are still allowed
	err  error
}

// peek reads ahead n bytes, or fewer at the end of the source.
func (in *input) peek(n int) ([]byte, error) {
	buf := make([]byte, n)
	got, err := io.ReadFull(in.r, buf)
	in.head = buf[:got]
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, in.fail(err)
	}
	return in.head, nil
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	if err := in.ctx.Err(); err != nil {
		return 0, in.fail(err)
	}
	var n int
	var err error
	if len(in.head) > 0 {
		n = copy(p, in.head)
		in.head = in.head[n:]
	} else {
		n, err = in.r.Read(p)
	}
	in.read += int64(n)
	if in.left -= int64(n); in.left < 0 {
		in.err = errs.New(errs.TooLarge, "the archive is larger than allowed, %d MiB: split it", in.read>>20)
		return 0, in.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, in.fail(err)
	}
	return n, err
}

// fail stores the error of the source. An unknown error counts as Unavailable.
func (in *input) fail(err error) error {
	kind := errs.KindOf(err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		in.err = &errs.Error{Kind: errs.Malformed, Message: "the archive broke off while it was received: send it again", Err: err}
		return in.err
	case kind == errs.Internal:
		kind = errs.Unavailable
	}
	in.err = errs.WrapAs(kind, "archive.Read", err)
	return in.err
}
