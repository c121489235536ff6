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
	f.Add([]byte(`{"told":]}`))
	f.Add([]byte(`{"players":[{"uuid":"069a79f4-44e9-4726-a5be-fca90e38aaf5","name":"x","by":"aaaaaa"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p, parsed players.PresencePart
		if err := json.Unmarshal(text, &p); err != nil {
			if parsed.ParseRecord(text) {
				t.Errorf("ParseRecord reads %s: %v", text, err)
			}
			return
		}
		if parsed.ParseRecord(text) && !reflect.DeepEqual(parsed, p) {
			t.Errorf("%s is %+v, and ParseRecord reads %+v", text, p, parsed)
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

// usual is a record of three players, as agents write it.
func usual() []byte {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	p := players.PresencePart{Part: 5}
	for _, id := range []players.PlayerID{"069a79f4-44e9-4726-a5be-fca90e38aaf5", "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", "853c80ef-3c37-49fd-aa49-938b674adae6"} {
		p.Players = append(p.Players, players.Presence{Player: id, Name: "Player" + string(id[:6]), By: "aaaaaa", Since: at, At: at.Add(time.Minute)})
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return b
}

func TestParseRecordReadsUsualPresences(t *testing.T) {
	text := usual()
	var parsed, want players.PresencePart
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if !parsed.ParseRecord(text) || !reflect.DeepEqual(parsed, want) {
		t.Errorf("%s is %+v, and ParseRecord reads %+v", text, want, parsed)
	}
}

func BenchmarkPresenceRecord(b *testing.B) {
	text := usual()
	b.Run("ParseRecord", func(b *testing.B) {
		for b.Loop() {
			if !new(players.PresencePart).ParseRecord(text) {
				b.Fatal("not parsed")
			}
		}
	})
	b.Run("UnmarshalJSON", func(b *testing.B) {
		for b.Loop() {
			if err := new(players.PresencePart).UnmarshalJSON(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
