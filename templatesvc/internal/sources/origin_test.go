package sources_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

func TestNoErrorTellsAURLThatAServerRedirectsTo(t *testing.T) {
	for name, to := range map[string]string{
		"a server that is not there": "http://127.0.0.1:1/x?X-Amz-Signature=s3cret",
		"itself":                     "/again?X-Amz-Signature=s3cret",
		"another scheme":             "ftp://host/x?X-Amz-Signature=s3cret",
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.RedirectHandler(to, http.StatusFound))
			defer s.Close()
			client := sources.Dialer{Egress: egresstest.Loopback()}.Client()
			defer client.CloseIdleConnections()
			resp, err := client.Get(s.URL)
			if err == nil {
				_ = resp.Body.Close()
				t.Fatal("it was answered")
			}
			err = sources.Unreachable("the server", err)
			if errs.KindOf(err) == errs.Internal || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v (%s)", err, errs.KindOf(err))
			}
		})
	}
}
