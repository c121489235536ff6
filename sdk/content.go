package orrery

import "io"

// Content is a body that is not JSON.
type Content struct {
	// Type is the media type.
	Type string
	// Open returns the bytes from the start. It is called for each attempt.
	Open func() (io.ReadCloser, error)
	// Size is the number of bytes; 0 if unknown.
	Size int64
}

// open returns the bytes from the start, with a *contentError if they cannot be read.
func (c *Content) open() (io.ReadCloser, error) {
	body, err := c.Open()
	if err != nil {
		return nil, &contentError{err}
	}
	return contentReader{body}, nil
}

type contentReader struct{ io.ReadCloser }

func (r contentReader) Read(into []byte) (int, error) {
	n, err := r.ReadCloser.Read(into)
	if err != nil && err != io.EOF {
		err = &contentError{err}
	}
	return n, err
}

// contentError says that the body of a request cannot be read. No gateway is at fault.
type contentError struct{ err error }

func (e *contentError) Error() string { return "read the body of the request: " + e.err.Error() }

func (e *contentError) Unwrap() error { return e.err }
