package rest

import (
	"html"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// sharePolicy keeps whatever a shared text contains from doing anything in a browser.
const sharePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"

// errNoShares tells who has a link why it leads nowhere.
var errNoShares error = errs.New(errs.NotFound, "sharing is turned off on this gateway: ask who sent you the link")

// readShare is the share that a link leads to, and its text. ok is false when the request
// was answered.
func (a *API) readShare(c *gin.Context) (record fleet.Share, text string, ok bool) {
	by := server.Actor(c)
	if by.User == "" {
		by.User = "anonymous"
	}
	err := errNoShares
	if !a.cfg.NoShares {
		record, text, err = a.cfg.Shares.Read(c.Request.Context(), by, c.Param("id"), func(s fleet.Share) bool { return maySeeShare(c, s) })
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", sharePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the link is a secret
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cache-Control", "no-store")
	if err != nil {
		server.Fail(c, err)
		return record, "", false
	}
	return record, text, true
}

// shareRaw is a shared text as it is.
func (a *API) shareRaw(c *gin.Context) {
	if _, text, ok := a.readShare(c); ok {
		c.Data(http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	}
}

// sharePage is a shared text for browsers: a page that runs and loads nothing.
func (a *API) sharePage(c *gin.Context) {
	record, text, ok := a.readShare(c)
	if !ok {
		return
	}
	note := ""
	if record.Burn {
		note = "<p>This was its only reading: the text is gone now. Save it if you need it.</p>\n"
	}
	title := html.EscapeString(string(record.Kind) + " " + record.Resource)
	c.Data(http.StatusOK, "text/html; charset=utf-8", []byte("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>"+title+"</title></head>\n<body>\n<h1>"+
		title+"</h1>\n"+note+"<pre>\n"+html.EscapeString(text)+"</pre>\n</body></html>\n"))
}

// deleteShare ends a share for who has the token that was told when it was made.
func (a *API) deleteShare(c *gin.Context) {
	by := server.Actor(c)
	if by.User == "" {
		by.User = "anonymous"
	}
	if err := a.cfg.Shares.Delete(c.Request.Context(), by, c.Param("id"), c.Query("token")); err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
