package diagnosis

import (
	"bytes"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/output"
)

func TestAWatcherPrintsWhatBeginsAndWhatIsOver(t *testing.T) {
	var out, notes bytes.Buffer
	a := &app.App{Out: &out, Err: &notes}
	w := watcher{app: a, printer: output.Printer{Out: &out, Format: output.Format{Name: "table"}}, known: map[string]output.Row{}}
	node := output.Row(`{"severity":"warning","kind":"node","name":"n1","reason":"NodeAway","message":"it is not connected"}`)
	longer := output.Row(`{"severity":"warning","kind":"node","name":"n1","reason":"NodeAway","message":"it is not connected for 2 hours"}`)
	group := output.Row(`{"severity":"critical","kind":"group","name":"g","reason":"CrashLoop","message":"it is paused"}`)
	for _, rows := range [][]output.Row{{node}, {longer, group}, {group}} {
		if err := w.update(rows); err != nil {
			t.Fatal(err)
		}
	}
	if want := "WARNING  node n1: it is not connected\nCRITICAL group g: it is paused\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if want := "over: node n1: it is not connected for 2 hours\n"; notes.String() != want {
		t.Errorf("noted %q, want %q", notes.String(), want)
	}
}
