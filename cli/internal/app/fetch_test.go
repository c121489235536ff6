package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
)

func TestAListThatDoesNotAdvanceIsAnError(t *testing.T) {
	pages := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		pages++
		if r.URL.Query().Get("page") == "1" {
			fmt.Fprint(w, `{"data":[{"name":"a"}],"total":3}`)
			return
		}
		fmt.Fprint(w, `{"data":[{"name":"b"}],"total":9000000}`)
	}))
	defer server.Close()
	client, err := orrery.New(orrery.Config{Addresses: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := app.List(t.Context(), client, kinds.Get("group"), "", nil)
	if err == nil || !strings.Contains(err.Error(), "page 2 of the groups twice") || pages != 3 {
		t.Errorf("%d rows after %d pages, %v", len(rows), pages, err)
	}
}
