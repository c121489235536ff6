package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
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

func TestTheRowsOfAllPagesAreKept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		page := r.URL.Query().Get("page")
		if page == "3" {
			fmt.Fprintf(w, `{"data":[{"name":"third"}],"total":5}`)
			return
		}
		fmt.Fprintf(w, `{"data":[{"name":"a%s"},{"name":"b%s"}],"total":5}`, page, page)
	}))
	defer server.Close()
	client, err := orrery.New(orrery.Config{Addresses: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := app.List(t.Context(), client, kinds.Get("group"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"a1"} {"name":"b1"} {"name":"a2"} {"name":"b2"} {"name":"third"}`
	if got := string(bytes.Join(rawOf(rows), []byte(" "))); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
}

func rawOf(rows []output.Row) [][]byte {
	raw := make([][]byte, len(rows))
	for i, row := range rows {
		raw[i] = row
	}
	return raw
}
