package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// endWithNewline appends a newline to JSON for terminal clients, so that the shell prompt starts on
// its own line.
func endWithNewline(c *gin.Context) {
	if c.Request.Method == http.MethodHead || !isTerminalClient(c.Request.UserAgent()) {
		return
	}
	w := &lined{ResponseWriter: c.Writer}
	c.Writer = w
	defer func() { c.Writer = w.ResponseWriter }() // also in a panic
	c.Next()
	h := w.Header()
	if w.last != 0 && w.last != '\n' && !w.encoded && strings.HasPrefix(h.Get("Content-Type"), "application/json") && h.Get("Content-Length") == "" {
		_, _ = w.ResponseWriter.Write([]byte{'\n'}) // the caller is gone if this fails
	}
}

// isTerminalClient reports whether a client prints responses to a terminal.
func isTerminalClient(agent string) bool {
	name, _, _ := strings.Cut(agent, "/")
	switch strings.ToLower(name) {
	case "curl", "wget", "httpie", "xh":
		return true
	}
	return false
}

// lined remembers the last byte of a response. encoded is true if the handler compressed it, so that
// nothing can be appended.
type lined struct {
	gin.ResponseWriter
	last    byte
	encoded bool
}

// Write writes a part of the response.
func (w *lined) Write(p []byte) (int, error) {
	if w.last == 0 { // later writes: compression may have set the header
		w.encoded = w.Header().Get("Content-Encoding") != ""
	}
	n, err := w.ResponseWriter.Write(p)
	if n > 0 {
		w.last = p[n-1]
	}
	return n, err
}

// WriteString is Write.
func (w *lined) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Unwrap is for http.ResponseController.
func (w *lined) Unwrap() http.ResponseWriter { return w.ResponseWriter }
