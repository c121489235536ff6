package orrery

import (
	"context"
	"io"
	"mime"
	"net/http"
)

// Download is an answer that is not JSON, such as an archive.
type Download struct {
	// Body has the bytes. The caller closes it.
	Body io.ReadCloser
	// Type is the media type.
	Type string
	// Size is the number of bytes; -1 if unknown.
	Size int64
	// Name is the file name that the gateway proposes; empty if it proposes none.
	Name string
	// Header has the headers of the answer.
	Header http.Header
}

// download sends a request and returns the answer without reading it.
func (c *Client) download(ctx context.Context, request Request) (*Download, error) {
	response, err := c.Do(ctx, request.accepting("*/*"))
	if err != nil {
		return nil, err
	}
	d := &Download{
		Body: response.Body, Type: response.Header.Get("Content-Type"),
		Size: response.ContentLength, Header: response.Header,
	}
	// A header that is missing or malformed means no name.
	if _, values, err := mime.ParseMediaType(response.Header.Get("Content-Disposition")); err == nil {
		d.Name = values["filename"]
	}
	return d, nil
}
