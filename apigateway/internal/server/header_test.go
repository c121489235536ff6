package server

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
)

// FuzzHeaders checks that header parsers accept or reject any value without a panic.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{`"42"`, `W/"42"`, "*", "42", `"1", "2"`, `"-1"`, "orrery.bearer, abc.def", "orrery.ticket,x,y", " , ,", "\x00", strings.Repeat("9", 40)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, _ := gin.CreateTestContext(httptest.NewRecorder())
		c.Request = httptest.NewRequest("GET", "/", nil)
		for _, name := range []string{"If-Match", "Sec-WebSocket-Protocol", "Idempotency-Key"} {
			c.Request.Header[name] = []string{text}
		}
		switch rev, err := IfMatch(c); {
		case err != nil:
			if rev != 0 || !errs.Is(err, errs.Malformed) {
				t.Errorf("%q: %d, %v", text, rev, err)
			}
		case rev > 0:
			if !strings.Contains(text, strconv.FormatInt(rev, 10)) {
				t.Errorf("%q is read as %d", text, rev)
			}
		}
		if got := authorization(c.Request); got != "" {
			t.Errorf("%q is a token where no WebSocket is opened: %q", text, got)
		}
		c.Request.Header.Set("Upgrade", "websocket")
		for _, protocol := range []string{BearerProtocol, TicketProtocol} {
			got := offered(c.Request, protocol)
			if strings.ContainsAny(got, ", ") || !strings.Contains(text, got) || got != "" && !strings.HasPrefix(strings.TrimSpace(text), protocol) {
				t.Errorf("%q offers %q by %s", text, got, protocol)
			}
		}
		if key := operation(c); (key == "") != (text == "") || key != operation(c) {
			t.Errorf("%q names %q", text, key)
		}
	})
}
