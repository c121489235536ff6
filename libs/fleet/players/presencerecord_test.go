package players_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/players"
)

func TestPresencePartRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	online := []players.Presence{
		{Player: "069a79f4-44e9-4726-a5be-fca90e38aaf5", Name: "Steve", By: "aaaaaa", Since: at, At: at.Add(time.Minute), Said: 7},
		{Player: "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", Name: "Alex", By: "pppppp", Proxy: true, Since: at, At: at},
		{Player: "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", Name: "Alex", By: "pppppq", Proxy: true, On: "aaaaaa", Group: "lobby", Edition: "JAVA", Since: at, At: at},
		{Player: "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", Name: "Alex", By: "pppppr", Group: "lobby", Since: at, At: at},
	}
	b, err := json.Marshal(players.PresencePart{Part: 5, Players: online})
	if err != nil {
		t.Fatal(err)
	}
	older, err := json.Marshal(map[string]any{"node": "n1", "part": 5, "players": online})
	if err != nil {
		t.Fatal(err)
	}
	if 2*len(b) > len(older) {
		t.Errorf("%d bytes, of %d before: %s", len(b), len(older), b)
	}
	for _, text := range [][]byte{b, older} {
		var got players.PresencePart
		if err := json.Unmarshal(text, &got); err != nil || got.Part != 5 || !reflect.DeepEqual(got.Players, online) {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
}

func FuzzPresencePart(f *testing.F) {
	f.Add([]byte(`{"part":5,"told":[["Bpp59ETpRyalvvypDjiq9Q","Steve","aaaaaa",1767323045678901,60000000,7]]}`))
	f.Add([]byte(`{"told":[[]]}`))
	f.Add([]byte(`{"players":[{"uuid":"069a79f4-44e9-4726-a5be-fca90e38aaf5","name":"x","by":"aaaaaa"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p players.PresencePart
		if json.Unmarshal(text, &p) != nil {
			return
		}
		b, err := json.Marshal(p)
		if err != nil {
			return // older records have the reported ID, which may be invalid in a damaged record
		}
		var again players.PresencePart
		if err := json.Unmarshal(b, &again); err != nil || len(again.Players) != len(p.Players) {
			t.Errorf("%s becomes %s: %v", text, b, err)
		}
	})
}
