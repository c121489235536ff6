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

// linked is a share that a link leads to.
type linked struct {
	fleet.Share
	text string
	// waits is true for what can be read once and was not: then there is no text.
	waits bool
}

// link follows a link, and reads the text: of what can be read once only if that is wanted.
// ok is false when the request was answered.
func (a *API) link(c *gin.Context, once bool) (l linked, ok bool) {
	by := server.Actor(c)
	if by.User == "" {
		by.User = "anonymous"
	}
	ctx, id, maySee := c.Request.Context(), c.Param("id"), func(s fleet.Share) bool { return maySeeShare(c, s) }
	once = once && c.Request.Method != http.MethodHead // which shows nothing
	err := errNoShares
	if !a.cfg.NoShares {
		if err = nil; !once {
			l.Share, err = a.cfg.Shares.Find(ctx, id, maySee)
			l.waits = err == nil && l.Burn
		}
		if err == nil && !l.waits {
			l.Share, l.text, err = a.cfg.Shares.Read(ctx, by, id, maySee)
		}
	}
	if _, known := server.Identity(c); known && errs.Is(err, errs.Unauthenticated) { // to log in again would not help
		err = errs.New(errs.Denied, "the share is private: ask a user who may share, and may see what it is of")
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", sharePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the link is a secret
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cache-Control", "no-store")
	if err != nil {
		server.Fail(c, err)
		return l, false
	}
	return l, true
}

// shareRaw is a shared text as it is.
func (a *API) shareRaw(c *gin.Context) {
	if l, ok := a.link(c, true); ok {
		c.Data(http.StatusOK, "text/plain; charset=utf-8", []byte(l.text))
	}
}

// sharePage is a shared text for browsers: a page that runs and loads nothing. What can be read
// once is shown with ?read=1 only, which a link of the page leads to: programs that look at
// the links in chats and mails open the page, and would be the ones that read it.
func (a *API) sharePage(c *gin.Context) {
	l, ok := a.link(c, c.Query("read") == "1")
	if !ok {
		return
	}
	body := "<pre>\n" + html.EscapeString(l.text) + "</pre>\n"
	switch {
	case l.waits:
		body = "<p>This text can be read once, by whoever opens it first.</p>\n<p><a href=\"?read=1\" rel=\"nofollow\">Read it now</a></p>\n"
	case l.Burn:
		body = "<p>This was its only reading: the text is gone now. Save it if you need it.</p>\n" + body
	}
	title := html.EscapeString(string(l.Kind) + " " + l.Resource)
	c.Data(http.StatusOK, "text/html; charset=utf-8", []byte("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>"+title+"</title></head>\n<body>\n<h1>"+
		title+"</h1>\n"+body+"</body></html>\n"))
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
