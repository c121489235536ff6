package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/client"
)

func TestARowThatIsNotWhatItSaysFails(t *testing.T) {
	cases := map[string]struct{ parts, body string }{
		"fewer bytes":          {"5,5", "helloyou"},
		"nothing":              {"5", ""},
		"no numbers":           {"five", "hello"},
		"a part that owes":     {"-5,10", "hello"},
		"parts without an end": {strings.Repeat("1,", client.MaxRow) + "1", strings.Repeat("x", client.MaxRow+1)},
		"no zstd":              {"5z", "hello"},
		"zstd that is cut":     {"2z", "\x28\xb5"},
	}
	for name, k := range cases {
		c := clientOf(t, time.Minute, replica(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(client.HeaderParts, k.parts)
			_, _ = io.WriteString(w, k.body)
		}))
		if got, err := all(c.Row(t.Context(), []string{"x", "y"})); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestATemplatesvcThatDoesNotKnowRowsHasNone(t *testing.T) {
	c := clientOf(t, time.Minute, replica(t, http.NewServeMux().ServeHTTP))
	if _, err := all(c.Row(t.Context(), []string{"x", "y"})); !errs.Is(err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestARowWhoseReplicaStopsInTheMiddleIsNotWaitedFor(t *testing.T) {
	c := clientOf(t, short, replica(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(client.HeaderParts, "4,4")
		mute("half")(w, r)
	}))
	if got, err := all(c.Row(t.Context(), []string{"x", "y"})); got != "half" || !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "nothing for") {
		t.Errorf("%q, %v", got, err)
	}
}
