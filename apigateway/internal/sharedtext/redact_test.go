package sharedtext

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

const planted = "S3cretValue0123456789"

func TestWhatLooksLikeACredentialIsHidden(t *testing.T) {
	for name, text := range map[string]string{
		"a token of a login":     "sent eyJhbGciOiJIUzI1NiJ9.eyJ" + planted + ".abc to it",
		"an API token":           "with ort_" + planted + planted,
		"a join token":           "with pxr_" + planted,
		"a bearer":               "Authorization: Bearer " + planted,
		"a bearer in a sentence": "got bearer " + planted + " from it",
		"basic credentials":      "authorization: Basic " + planted + "==",
		"a cookie":               "Cookie: session=" + planted + "; other=" + planted,
		"a URI":                  "https://user:" + planted + "@host/path",
		"a URI with a token":     "https://" + planted + "@host/path",
		"a database":             "postgres://app:" + planted + "@db:5432/x?sslmode=off",
		"a URI with an at":       "redis://:p@" + planted + "@host",
		"a query":                "GET /x?ticket=" + planted + "&tail=0",
		"text of slog":           `time=now level=INFO msg=x token=` + planted + ` user=x`,
		"quoted text of slog":    `password="two words ` + planted + `" user=x`,
		"JSON":                   `{"user":"x","adminPassword":"` + planted + `","n":1}`,
		"JSON with a quote":      `{"secret":"a\"` + planted + `","n":1}`,
		"JSON in a text":         `msg="{\"password\":\"` + planted + `\"}"`,
		"YAML":                   "rcon:\n  password: two words " + planted + "\n  port: 1",
		"properties":             "rcon.password=two words " + planted,
		"an environment":         "CLOUD_PLUGIN_TOKEN=" + planted,
		"a key in PEM":           "-----BEGIN RSA PRIVATE KEY-----\n" + planted + "\n" + planted + "\n-----END RSA PRIVATE KEY-----\n",
		"a key that breaks off":  "-----BEGIN PRIVATE KEY-----\n" + planted,
		"a key of a cloud":       "aws_secret_access_key = " + planted,
		"an id of a key":         "AKIAS3CRETVALUE01234 " + "x",
		"an option":              "java -jar x.jar --rcon-password " + planted + " nogui",
		"an option with =":       "x --api-key=" + planted,
	} {
		got := Redact(text)
		if strings.Contains(got, planted) || strings.Contains(got, "AKIAS3") || !strings.Contains(got, hidden) {
			t.Errorf("%s: %s", name, got)
		}
		if strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("%s: lines are lost: %q", name, got)
		}
	}
}

func TestWhatIsNoCredentialStays(t *testing.T) {
	for _, text := range []string{
		"", "a line\nanother\n", "[12:00:01 INFO]: Done (3.2s)! For help, type \"help\"", "the tokens are gone", "java.lang.NullPointerException: x\n\tat a.B.c(B.java:12)",
		"http://host:8080/path?page=2", "user=admin ip=10.0.0.1 status=200", "2030-01-01T12:00:00Z", "tokenId=t1", `{"id":"lobby-1","memoryMb":512}`,
	} {
		if got := Redact(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := Redact("https://user:pw@host/path"); got != "https://***@host/path" {
		t.Error(got)
	}
	if got := Redact(`{"password":"x","n":1}`); got != `{"password":"***","n":1}` {
		t.Error(got)
	}
}

func TestJSONIsRedactedAndStaysJSON(t *testing.T) {
	got, err := RedactJSON(map[string]any{
		"n": int64(9007199254740993), "text": "password=" + planted + "\nnext", "token": planted, "tokens": 3, "pin": map[string]any{"apiKey": 12345},
		"smtp": map[string]any{"password": planted, "secret": []string{planted}, "user": "x", "url": "http://a:" + planted + "@b"}, "empty": map[string]any{"secret": ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	want := `{"empty":{"secret":""},"n":9007199254740993,"pin":{"apiKey":"***"},"smtp":{"password":"***","secret":["***"],"url":"http://***@b","user":"x"},"text":"password=***\nnext","token":"***","tokens":3}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
}

func FuzzRedact(f *testing.F) {
	for _, seed := range []string{"", "a", "\n", `"`, "password", "https://", "--", "-----BEGIN PRIVATE KEY-----", "=", "\xff", "eyJ"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, planted) {
			return
		}
		for _, form := range []string{"\npassword=" + planted + "\n", "\nhttps://user:" + planted + "@host\n", "\nort_" + planted + "\n", "\nAuthorization: Bearer " + planted + "\n"} {
			text := before + form + after
			got := Redact(text)
			if strings.Contains(got, planted) {
				t.Errorf("%q became %q", text, got)
			}
			if strings.Count(got, "\n") != strings.Count(text, "\n") || utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}
