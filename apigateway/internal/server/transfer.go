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
	// UploadLimit is the size of the largest upload, in bytes: 512 MiB and what a form
	// puts around it.
	UploadLimit = 512<<20 + wire.BodyLimit
	// TextLimit is the size of the largest body that carries a file of text in JSON.
	TextLimit = 8 << 20
	// stall is how long a transfer may stand still before it is given up.
	stall = 30 * time.Second
	// moveEvery is the time between two moves of a transfer's deadline.
	moveEvery = time.Second
)

// patient is a body whose deadline moves on while it comes.
type patient struct {
	io.ReadCloser
	rc    *http.ResponseController
	moved time.Time
}

// Read reads on. A connection that takes no deadline is as good.
func (p *patient) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(p.moved) >= moveEvery {
		_ = p.rc.SetReadDeadline(now.Add(stall))
		p.moved = now
	}
	n, err := p.ReadCloser.Read(b)
	if err != nil {
		_ = p.rc.SetReadDeadline(time.Time{}) // what is done with it may take its time
	}
	return n, err
}

// Transfer is an answer that is bytes.
type Transfer struct {
	// Type is its media type; Name makes it an attachment of that name.
	Type, Name string
	// Size is in bytes; negative when it is not known.
	Size int64
	// Body is closed when it is sent.
	Body io.ReadCloser
}

// Send streams an answer, which may take as long as it needs while the client takes
// it. What fails midway cuts the connection, so that nobody takes a part for the whole.
func Send(c *gin.Context, t Transfer) {
	defer t.Body.Close()
	rc := http.NewResponseController(c.Writer)
	_ = rc.SetReadDeadline(time.Time{}) // nothing more is read; unsupported is as good
	c.Header("Content-Type", t.Type)
	if t.Size >= 0 {
		c.Header("Content-Length", strconv.FormatInt(t.Size, 10))
	}
	if t.Name != "" {
		c.Header("Content-Disposition", `attachment; filename="`+attachment(t.Name)+`"`)
	}
	c.Status(http.StatusOK)
	if c.Request.Method == http.MethodHead { // that there is a body is all that is asked
		c.Writer.WriteHeaderNow()
		return
	}
	if _, err := io.Copy(&unhurried{w: c.Writer, rc: rc}, t.Body); err != nil {
		_ = c.Error(err)
		panic(http.ErrAbortHandler)
	}
	_ = rc.SetWriteDeadline(time.Time{})
}

// Unhurried lets an answer to a request that was read take as long as it needs: the
// time limit of the connection would end it.
func Unhurried(c *gin.Context) {
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{}) // unsupported is as good
}

// unhurried writes under a deadline that moves on.
type unhurried struct {
	w     io.Writer
	rc    *http.ResponseController
	moved time.Time
}

func (u *unhurried) Write(b []byte) (int, error) {
	if now := time.Now(); now.Sub(u.moved) >= moveEvery {
		_ = u.rc.SetWriteDeadline(now.Add(stall))
		u.moved = now
	}
	return u.w.Write(b)
}

// attachment is a file name that stands in a header as it is.
func attachment(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\/%;`, r) {
			return '_'
		}
		return r
	}, name)
}
