package artifacts_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/artifacts"
)

func TestNoErrorTellsAURLThatAnArtifactIsRedirectedTo(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/x?X-Amz-Signature=s3cret", http.StatusFound))
	defer s.Close()
	store, err := artifacts.Open(artifacts.Config{Dir: t.TempDir(), Egress: egresstest.Loopback(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Pin(t.Context(), s.URL)
	if !errs.Is(err, errs.Invalid) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}
