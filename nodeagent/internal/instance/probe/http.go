package probe

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxBody bounds the part of an HTTP answer that is matched with a pattern.
const maxBody = 64 << 10

// askHTTP requests the check's path. It does not follow a redirect, which may lead to another
// server.
func askHTTP(ctx context.Context, c fleet.Check, address string) error {
	path := c.Path
	if path == "" {
		path = "/"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return errs.WrapAs(errs.Invalid, "probe.Ask", err)
	}
	client := http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return noAnswer(address, err)
	}
	defer response.Body.Close()
	switch got := response.StatusCode; {
	case c.Status != 0 && got != c.Status:
		return wrongAnswer(address, "answers GET %s with %d instead of %d", path, got, c.Status)
	case c.Status == 0 && (got < 200 || got > 399):
		return wrongAnswer(address, "answers GET %s with %d", path, got)
	case c.Pattern == "":
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return noAnswer(address, err)
	}
	return matchPattern(c, address, body)
}
