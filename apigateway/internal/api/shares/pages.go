package shares

import (
	"html"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// sharePolicy is the Content-Security-Policy that keeps a shared text from running in a browser.
const sharePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"

// errNoShares answers links while sharing is turned off.
var errNoShares error = errs.New(errs.NotFound, "sharing is turned off on this gateway: ask who sent you the link")

// linked is a share that was opened by its link.
type linked struct {
	account.Share
	text string
	// waits is true for a share that can be read once and was not read. It has no text.
	waits bool
}

// link opens a share and reads its text. It reads a share that can be read once only if once is
// true. ok is false if it answered the request.
func (a *API) link(c *gin.Context, once bool) (l linked, ok bool) {
	by := server.Actor(c)
	if by.User == "" {
		by.User = "anonymous"
	}
	ctx, id, maySee := c.Request.Context(), c.Param("id"), func(s account.Share) bool { return maySeeShare(c, s) }
	once = once && c.Request.Method != http.MethodHead // HEAD shows no text
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
	if _, known := server.Identity(c); known && errs.Is(err, errs.Unauthenticated) { // logging in again would not help
		err = errs.New(errs.Denied, "the share is private: you lack a permission to read it")
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

// shareRaw answers with the plain text.
func (a *API) shareRaw(c *gin.Context) {
	if l, ok := a.link(c, true); ok {
		c.Data(http.StatusOK, "text/plain; charset=utf-8", []byte(l.text))
	}
}

// sharePage shows a text in a browser, on a page that loads nothing. A text that can be read once
// appears only with ?read=1, the target of a link on the page. Otherwise link previews of chat and
// mail programs would use up the only read.
func (a *API) sharePage(c *gin.Context) {
	l, ok := a.link(c, c.Query("read") == "1")
	if !ok {
		return
	}
	body := "<pre>\n" + html.EscapeString(l.text) + "</pre>\n"
	switch {
	case l.waits:
		body = "<p>This text can be read only once.</p>\n<p><a href=\"?read=1\" rel=\"nofollow\">Read it now</a></p>\n"
	case l.Burn:
		body = "<p>The text is now deleted. Save it if you need it.</p>\n" + body
	}
	title := html.EscapeString(strings.TrimSpace(string(l.Kind) + " " + l.Resource))
	c.Data(http.StatusOK, "text/html; charset=utf-8", []byte("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>"+title+"</title></head>\n<body>\n<h1>"+
		title+"</h1>\n"+body+"</body></html>\n"))
}

// deleteShare deletes a share for the holder of its delete token.
func (a *API) deleteShare(c *gin.Context) {
	by := server.Actor(c)
	if by.User == "" {
		by.User = "anonymous"
	}
	resource.SendDeleted(c, a.cfg.Shares.Delete(c.Request.Context(), by, c.Param("id"), c.Query("token")))
}
