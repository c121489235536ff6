package command_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
)

func TestSelectionNamesWhatIsMissing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		field, name := "name", "lobby"
		if r.URL.Path == "/api/v1/nodes" {
			field, name = "id", "node-1"
		}
		fmt.Fprintf(w, `{"data":[{%q:%q}],"total":1}`, field, name)
	}))
	defer server.Close()
	client, err := orrery.New(orrery.Config{Addresses: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	refused := &orrery.Error{Status: http.StatusUnprocessableEntity, Message: "groups names a group that does not exist"}
	for _, c := range []struct {
		name      string
		selection command.Selection
		err       error
		code      int
		hint      string
	}{
		{"a group", command.Selection{Groups: []string{"lobby", "lobbi"}}, refused, exit.NotFound, "did you mean lobby?"},
		{"a node", command.Selection{Node: "node-2"}, refused, exit.NotFound, "did you mean node-1?"},
		{"nothing", command.Selection{Groups: []string{"lobby"}, Node: "node-1"}, refused, exit.Failed, ""},
		{"another refusal", command.Selection{Groups: []string{"x"}}, &orrery.Error{Status: http.StatusForbidden}, exit.Denied, "see what you may do: orrery get me"},
	} {
		got := c.selection.Missing(t.Context(), client, c.err)
		if exit.CodeOf(got) != c.code || exit.HintOf(got) != c.hint {
			t.Errorf("%s: %v, code %d, hint %q; want code %d, hint %q", c.name, got, exit.CodeOf(got), exit.HintOf(got), c.code, c.hint)
		}
	}
}
