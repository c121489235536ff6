package reading_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/reading"
)

func TestDescribePrintsTheBeginningOfALongList(t *testing.T) {
	var instances []string
	for n := range 200 {
		instances = append(instances, fmt.Sprintf(`{"id":"lobby-%d","extra":"x"}`, n+1))
	}
	list := "[" + strings.Join(instances, ",") + "]"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"id":"n1","instances":%s,"runtimes":%s}`, list, list)
	}))
	defer server.Close()
	got := clitest.Run(t, reading.Commands, server.URL, "", "describe", "node", "n1").Out
	for _, want := range []string{"  - id:    lobby-20\n", "  and 180 more: orrery get instances --node n1\n", "  and 180 more: orrery get node n1 -o yaml\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "lobby-21\n") {
		t.Errorf("the 21st instance is printed:\n%s", got)
	}
	if got := clitest.Run(t, reading.Commands, server.URL, "", "describe", "node", "n1", "-o", "json").Out; !strings.Contains(got, "lobby-200") {
		t.Error("-o json lacks the last instance")
	}
}
