package record_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/e2e/faults/record"
)

func TestWhatARunWritesIsRead(t *testing.T) {
	dir := t.TempDir()
	late := record.Header{Instance: "bbbbbb", Name: "lobby-2", Group: "lobby", Node: "node-1", PID: 2, Port: 5, Started: 200}
	early := record.Header{Instance: "aaaaaa", Name: "world-1", Group: "world", Node: "node-1", PID: 1, Static: true, Earlier: 3, Started: 100}
	for _, h := range []record.Header{late, early} {
		w, err := record.Create(dir, h)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if h.PID == 2 {
			continue
		}
		for _, now := range []record.Time{110, 1 << 60} {
			if err := w.Alive(now); err != nil {
				t.Fatal(err)
			}
			if err := w.Note(record.Note{At: now, Event: record.Listening}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []record.Run{
		{Header: early, Alive: 1 << 60, Notes: []record.Note{{At: 110, Event: record.Listening}, {At: 1 << 60, Event: record.Listening}}},
		{Header: late, Alive: 200},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if at, ok := got[0].Has(record.Listening); !ok || at != 110 {
		t.Errorf("listening at %d, %v", at, ok)
	}
}

func TestAFileThatWasCutShortSaysNothing(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a": "", "b": "{", "c": "{}\n", "d": "{}\n000", "e": "{}\nx\n", "f": "x\n0001\n"} {
		if err := os.WriteFile(filepath.Join(dir, name+".run"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := record.Read(dir); err != nil || len(got) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTheBootClockGoesOn(t *testing.T) {
	if a, b := record.Now(), record.Now(); a <= 0 || b < a {
		t.Errorf("%d, then %d", a, b)
	}
}
