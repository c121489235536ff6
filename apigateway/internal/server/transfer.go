package server

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// UploadLimit is the maximum size of an upload in bytes: 512 MiB plus the overhead of a form.
	UploadLimit = 512<<20 + wire.BodyLimit
	// TextLimit is the maximum size in bytes of a JSON body with a text file.
	TextLimit = 8 << 20
	// stall is how long a transfer may make no progress.
	stall = 30 * time.Second
)

// slowBody is a body whose read deadline is extended while data arrives.
type slowBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

// Read reads and extends the deadline, if the connection supports one.
func (p *slowBody) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(stall))
	n, err := p.ReadCloser.Read(b)
	if err != nil {
		_ = p.rc.SetReadDeadline(time.Time{}) // processing the body may take long
	}
	return n, err
}

// Transfer is a binary response.
type Transfer struct {
	// Type is the media type. With a Name, the response is an attachment.
	Type, Name string
	// Size is in bytes; negative if unknown.
	Size int64
	// Body is closed by Send.
	Body io.ReadCloser
}

// Send streams a response, for as long as the client keeps reading. An error midway cuts the
// connection, so that the client notices the response is incomplete.
func Send(c *gin.Context, t Transfer) {
	defer t.Body.Close()
	rc := http.NewResponseController(c.Writer)
	_ = rc.SetReadDeadline(time.Time{}) // nothing more is read; may be unsupported
	c.Header("Content-Type", t.Type)
	if t.Size >= 0 {
		c.Header("Content-Length", strconv.FormatInt(t.Size, 10))
	}
	if t.Name != "" {
		c.Header("Content-Disposition", `attachment; filename="`+attachment(t.Name)+`"`)
	}
	c.Status(http.StatusOK)
	if c.Request.Method == http.MethodHead { // HEAD has no body
		c.Writer.WriteHeaderNow()
		return
	}
	if _, err := io.Copy(&slowWriter{w: c.Writer, rc: rc}, t.Body); err != nil {
		_ = c.Error(err)
		panic(http.ErrAbortHandler)
	}
	_ = rc.SetWriteDeadline(time.Time{})
}

// Unhurried removes the read deadline of a request that was read, because it would also end a slow
// response.
func Unhurried(c *gin.Context) {
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{}) // may be unsupported
}

// slowWriter extends the write deadline while data is written.
type slowWriter struct {
	w  io.Writer
	rc *http.ResponseController
}

func (u *slowWriter) Write(b []byte) (int, error) {
	_ = u.rc.SetWriteDeadline(time.Now().Add(stall))
	return u.w.Write(b)
}

// attachment returns a file name that is safe in a header.
func attachment(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\/%;`, r) {
			return '_'
		}
		return r
	}, name)
}
