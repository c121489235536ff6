package console

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
)

// FuzzPlace checks that a start position is either valid or rejected.
func FuzzPlace(f *testing.F) {
	for _, seed := range [][3]string{{"", "", ""}, {"12", "", ""}, {"12-end", "", ""}, {"-end", "", ""}, {"", "7", ""}, {"", "-1", ""}, {"", "", "99999999"}, {"9223372036854775808", "", ""}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, id, offset, lines string) {
		r := httptest.NewRequest("GET", "/?"+url.Values{"offset": {offset}, "lines": {lines}}.Encode(), nil)
		r.Header["Last-Event-Id"] = []string{id}
		at, over, err := startOf(r, backlog)
		switch {
		case err != nil:
			if !errs.Is(err, errs.Malformed) || errs.FieldOf(err) == "" {
				t.Errorf("%v", err)
			}
		case over && at.Offset < 0, at.Offset < -1, at.Offset >= 0 && at.Lines != 0, at.Lines < 0, at.Lines > maxBacklog:
			t.Errorf("%q, %q and %q are %+v, %v", id, offset, lines, at, over)
		}
	})
}
