package probe

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxBody is how much of an HTTP answer is compared with a pattern.
const maxBody = 64 << 10

// askHTTP gets the check's path. A redirect is an answer and is not followed: it would
// ask somebody else.
func askHTTP(ctx context.Context, c fleet.Check, address string) error {
	path := c.Path
	if path == "" {
		path = "/"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return errs.As(errs.Invalid, "probe.Ask", err)
	}
	client := http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return silent(address, err)
	}
	defer response.Body.Close()
	switch got := response.StatusCode; {
	case c.Status != 0 && got != c.Status:
		return odd(address, "answers GET %s with %d instead of %d", path, got, c.Status)
	case c.Status == 0 && (got < 200 || got > 399):
		return odd(address, "answers GET %s with %d", path, got)
	case c.Pattern == "":
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return silent(address, err)
	}
	return matches(c, address, body)
}
