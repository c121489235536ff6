package players_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

func TestMergePresence(t *testing.T) {
	const id = players.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5")
	early := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	late := early.Add(time.Second)
	told := func(by fleet.InstanceID, at time.Time, edit ...func(*players.Presence)) players.Presence {
		p := players.Presence{Player: id, Name: "Steve", By: by, Since: at, At: at}
		for _, e := range edit {
			e(&p)
		}
		return p
	}
	proxy := func(on fleet.InstanceID) func(*players.Presence) {
		return func(p *players.Presence) { p.Proxy, p.On, p.Edition, p.Group = true, on, "JAVA", "lobby" }
	}
	for name, tc := range map[string]struct {
		told []players.Presence
		want players.Player
		gone bool
	}{
		"nobody tells anything":                      {gone: true},
		"who tells it lives no more":                 {told: []players.Presence{told("dead01", late)}, gone: true},
		"a server alone":                             {told: []players.Presence{told("aaaaaa", early)}, want: players.Player{Server: "aaaaaa", Edition: "java", Since: early}},
		"the later of two servers":                   {told: []players.Presence{told("bbbbbb", late), told("aaaaaa", early)}, want: players.Player{Server: "bbbbbb", Edition: "java", Since: late}},
		"a proxy that does not say where":            {told: []players.Presence{told("pppppp", early, proxy(""))}, want: players.Player{Proxy: "pppppp", Edition: "JAVA", Since: early}},
		"a proxy that says where":                    {told: []players.Presence{told("pppppp", early, proxy("aaaaaa"))}, want: players.Player{Proxy: "pppppp", Server: "aaaaaa", Group: "lobby", Edition: "JAVA", Since: early}},
		"a proxy that says where nobody lives":       {told: []players.Presence{told("pppppp", early, proxy("dead01"))}, want: players.Player{Proxy: "pppppp", Edition: "JAVA", Since: early}},
		"the server has heard later than the proxy":  {told: []players.Presence{told("pppppp", early, proxy("aaaaaa")), told("bbbbbb", late)}, want: players.Player{Proxy: "pppppp", Server: "bbbbbb", Edition: "JAVA", Since: early}},
		"the proxy has sent on who has not left yet": {told: []players.Presence{told("aaaaaa", early), told("pppppp", late, proxy("bbbbbb"))}, want: players.Player{Proxy: "pppppp", Server: "bbbbbb", Group: "lobby", Edition: "JAVA", Since: late}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := players.MergePresence(tc.told, func(by fleet.InstanceID) bool { return by != "dead01" })
			if !tc.gone {
				tc.want.ID, tc.want.Name = id, "Steve"
			}
			if d := cmp.Diff(tc.want, got); d != "" || ok == tc.gone {
				t.Errorf("there %v: %s", ok, d)
			}
		})
	}
}

func TestEditionIsReportedOrDerivedFromUUID(t *testing.T) {
	const java, floodgate = players.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5"), players.PlayerID("00000000-0000-0000-0009-01f3a1b2c3d4")
	for name, tc := range map[string]struct {
		id   players.PlayerID
		told []players.Presence
		want string
	}{
		"a server that says nothing":                {java, []players.Presence{{By: "aaaaaa"}}, players.EditionJava},
		"a server, of a player of Floodgate":        {floodgate, []players.Presence{{By: "aaaaaa"}}, players.EditionBedrock},
		"a proxy, of a player of Floodgate":         {floodgate, []players.Presence{{By: "pppppp", Proxy: true}, {By: "aaaaaa"}}, players.EditionBedrock},
		"a proxy that says otherwise than the UUID": {java, []players.Presence{{By: "pppppp", Proxy: true, Edition: "bedrock"}, {By: "aaaaaa"}}, "bedrock"},
		"only the server says it":                   {java, []players.Presence{{By: "pppppp", Proxy: true}, {By: "aaaaaa", Edition: "bedrock"}}, "bedrock"},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range tc.told {
				tc.told[n].Player = tc.id
			}
			if got, _ := players.MergePresence(tc.told, func(fleet.InstanceID) bool { return true }); got.Edition != tc.want {
				t.Errorf("edition %q, want %q", got.Edition, tc.want)
			}
		})
	}
}

func FuzzPlayerIDs(f *testing.F) {
	for _, s := range []string{"069a79f4-44e9-4726-a5be-fca90e38aaf5", "069A79F444E94726A5BEFCA90E38AAF5", "steve", "", "069a79f4-44e94726-a5be-fca90e38aaf5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := players.ParsePlayerID(text)
		if err != nil {
			if id != "" || !errs.Is(err, errs.Malformed) {
				t.Errorf("%q: %q, %v", text, id, err)
			}
			return
		}
		again, err := players.ParsePlayerID(string(id))
		if err != nil || again != id || len(id) != 36 || !strings.EqualFold(strings.ReplaceAll(string(id), "-", ""), strings.ReplaceAll(text, "-", "")) {
			t.Errorf("%q became %q, and that %q, %v", text, id, again, err)
		}
		if n := id.Part(); n < 0 || n >= players.PresenceParts {
			t.Errorf("%q belongs to part %d", id, n)
		}
	})
}
