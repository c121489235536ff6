package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"

	"github.com/gin-gonic/gin"
	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
)

// isYAML reports whether a body of a media type is YAML.
func isYAML(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/yaml" || media == "application/x-yaml" || media == "text/yaml")
}

// fromYAML replaces a YAML body by the same as JSON, so that routes read only JSON.
func (s *Server) fromYAML(c *gin.Context) {
	if s.routeOf(c).Body.Raw || !isYAML(c.GetHeader("Content-Type")) || c.Request.ContentLength == 0 {
		return
	}
	raw, err := io.ReadAll(c.Request.Body)
	if err == nil {
		raw, err = jsonOf(raw)
	}
	if err != nil {
		Fail(c, err)
		c.Abort()
		return
	}
	c.Request.Body, c.Request.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	c.Request.Header.Set("Content-Type", "application/json")
}

// jsonOf returns one YAML document as JSON. It returns Malformed for anything else.
func jsonOf(raw []byte) ([]byte, error) {
	malformed := func(why string) error { return errs.New(errs.Malformed, "the body is not valid YAML: %s", why) }
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var document yaml.Node
	var value any
	if err := d.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, malformed(err.Error())
	}
	datesAsText(&document)
	if err := document.Decode(&value); err != nil {
		return nil, malformed(err.Error())
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, malformed("send one document at a time")
	}
	out, err := json.Marshal(value)
	if err != nil { // a key that is no text, or a number that JSON does not have
		return nil, malformed(err.Error())
	}
	return out, nil
}

// datesAsText keeps dates as they are written. JSON has no dates, and a changed text would be stored.
func datesAsText(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		datesAsText(c)
	}
}
