package apigateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const repository = `{"kind":"git","url":"https://host/r.git","branch":"main","group":"games","credentials":{"token":"very-secret","webhook":"0123456789abcdef"}}`

func (s *site) source(name string) content.TemplateSource {
	s.t.Helper()
	got, err := store.Get(s.t.Context(), s.store, keys.TemplateSource(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// looked writes the status for a source's latest record.
func (s *site) looked(name string, st content.SourceStatus) {
	s.t.Helper()
	st.Name, st.Observed = name, s.source(name).ModRev
	old, _ := store.Get(s.t.Context(), s.store, keys.TemplateSourceStatus(name))
	s.commit(store.Replace(keys.TemplateSourceStatus(name), st, old.ModRev))
}

func TestAHashIsTakenInUpperCaseToo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/web", `{"kind":"http","url":"https://host/a.zip","template":"g/t","sha256":"`+strings.Repeat("AB", 32)+`"}`).want(201).is("sha256", strings.Repeat("ab", 32))
	s.do("PUT", "/api/v1/template-sources/web", `{"kind":"http","url":"https://host/a.jar","template":"g/t","file":"a.jar","hashUrl":"https://host/a.jar.sha256"}`).want(200).
		is("sha256", "").is("hashUrl", "https://host/a.jar.sha256")
	s.do("GET", "/api/node/config", nil).want(200).naming(`"hashUrl":"https://host/a.jar.sha256"`)
	s.do("PUT", "/api/v1/template-sources/web", `{"kind":"http","url":"https://host/a.zip","template":"g/t"}`).want(200).is("sha256", "").is("hashUrl", "")
}

func TestTheStorageOfALayerIsASourceThatPublishesIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/web", `{"kind":"http","url":"https://host/a.zip","template":"g/t"}`).want(201)
	s.templateFrom("web", "g/t")
	s.templateFrom(content.DirectoryOrigin, "g/own")
	layer := func(list, name, storage string) string {
		return `{"command":"run","templateInstallationConfig":{"` + list + `":[{"group":"g","name":"` + name + `","storage":"` + storage + `","priority":0}]}}`
	}
	for _, list := range []string{"allOf", "oneOf"} {
		for _, unknown := range []string{"nothing", "a/b", "..", "WEB"} {
			for _, path := range []string{"/api/v1/groups/lobby", "/api/configurations/lobby"} {
				s.do("PUT", path, layer(list, "t", unknown)).want(422).naming(list + "[0].storage").naming(unknown).naming("use local, directory, or the name of a source")
			}
		}
		s.do("PUT", "/api/configurations/lobby", layer(list, "own", "web")).want(422).naming("g/own does not come from web, but from directory")
		s.do("PUT", "/api/configurations/lobby", layer(list, "t", content.DirectoryOrigin)).want(422).naming("g/t does not come from directory, but from web")
	}
	for _, good := range []string{layer("allOf", "t", "local"), layer("allOf", "own", content.DirectoryOrigin), layer("oneOf", "own", ""), layer("allOf", "t", "web")} {
		s.do("PUT", "/api/configurations/lobby", good).want(204)
	}
	s.do("GET", "/api/configurations/lobby", nil).want(200).naming(`"storage":"web"`)
	s.do("DELETE", "/api/v1/template-sources/web?dryRun=true", nil).want(409)
	s.do("DELETE", "/api/v1/template-sources/web", nil).want(409).naming("storage of templates of lobby")
	s.do("PUT", "/api/configurations/lobby", layer("allOf", "t", "local")).want(204)
	s.do("DELETE", "/api/v1/template-sources/web", nil).want(204)
}

func TestASourceIsMadeReadReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("GET", "/api/v1/template-sources", nil).want(200).is("total", 0)
	s.do("GET", "/api/v1/template-sources/repo", nil).want(404)
	made := s.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	made.is("name", "repo").is("kind", "git").is("branch", "main").is("group", "games").is("intervalSeconds", 60).
		is("credentialNames", []string{"token", "webhook"}).is("status.state", "SYNCING").is("updatedBy", "admin")
	if strings.Contains(made.raw, "very-secret") {
		t.Error("a credential is shown")
	}
	if raw, err := json.Marshal(s.source("repo")); err != nil || strings.Contains(string(raw), "very-secret") {
		t.Errorf("a credential stands in the store in clear: %v", err)
	}
	box := seal.NewBox(secret, content.SourceCredentialsKind)
	if plain, err := box.Open(s.source("repo").Sealed); err != nil || !strings.Contains(string(plain), "very-secret") {
		t.Errorf("templatesvc cannot open it: %q, %v", plain, err)
	}
	before := s.revision()
	s.do("PUT", "/api/v1/template-sources/repo", made.raw).want(200)
	s.do("PUT", "/api/v1/template-sources/repo", repository).want(200)
	s.do("PUT", "/api/v1/template-sources/repo?dryRun=true", `{"kind":"git","url":"https://host/r.git"}`).want(200).is("dryRun", true)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("what changes nothing wrote something: %v", keys)
	}
	s.looked("repo", content.SourceStatus{
		State: content.SourceFailed, Message: "why", Revision: "abc",
		Items: []content.SourceItem{{Template: content.TemplateRef{Group: "default", Name: "t"}, Digest: "d"}},
	})
	s.do("GET", "/api/v1/template-sources/repo", nil).want(200).is("status.state", "FAILED").is("status.message", "why").
		is("status.items", []map[string]string{{"template": "t", "hash": "d", "message": ""}})
	s.do("PUT", "/api/v1/template-sources/repo", `{"kind":"git","url":"https://host/r.git","credentials":{}}`, "If-Match", `"1"`).want(412)
	s.do("PUT", "/api/v1/template-sources/repo", `{"kind":"git","url":"https://host/r.git","tag":"v1","credentials":{}}`).want(200).
		is("branch", "").is("tag", "v1").is("credentialNames", []string{}).is("status.state", "SYNCING")
	s.do("DELETE", "/api/v1/template-sources/repo?dryRun=true", nil).want(200)
	s.do("DELETE", "/api/v1/template-sources/repo", nil).want(204)
	s.do("DELETE", "/api/v1/template-sources/repo", nil).want(404)
	if left, _, err := store.List(t.Context(), s.store, keys.TemplateSourceStatuses()); err != nil || len(left) > 0 {
		t.Errorf("its status is left: %v, %v", left, err)
	}
	s.do("GET", "/api/v1/audit", nil).want(200).naming("template-source.create").naming("template-source.update").naming("template-source.delete")
}

func TestABadSourceIsRefusedByField(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	before := s.revision()
	for field, body := range map[string]string{
		"kind":                `{"kind":"ftp","url":"https://host/r.git"}`,
		"url":                 `{"kind":"git","url":"host"}`,
		"sha256":              `{"kind":"http","url":"https://host/a.zip","template":"t","sha256":"ab"}`,
		"hashUrl":             `{"kind":"http","url":"https://host/a.zip","template":"t","hashUrl":"http://host/a.sha256"}`,
		"template":            `{"kind":"git","url":"https://host/r.git","template":"../x"}`,
		"name":                `{"name":"other","kind":"git","url":"https://host/r.git"}`,
		"credentials":         `{"kind":"git","url":"https://elsewhere/r.git"}`,
		"credentials.webhook": `{"kind":"git","url":"https://host/r.git","credentials":{"webhook":"short"}}`,
		"credentials.token":   `{"kind":"git","url":"https://host/r.git","credentials":{"token":"a\nb"}}`,
	} {
		s.do("PUT", "/api/v1/template-sources/repo", body).want(422).naming(field)
	}
	s.do("PUT", "/api/v1/template-sources/repo", `{"kind":"git","colour":"red"}`).want(400)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
}

func TestASourceIsLookedAtWhenAskedOrCalled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	s.do("PUT", "/api/v1/template-sources/quiet", `{"kind":"git","url":"https://host/r.git"}`).want(201)
	s.do("POST", "/api/v1/template-sources/none/sync", nil).want(404)
	s.do("POST", "/api/v1/template-sources/repo/sync", nil).want(202).is("status", "REQUESTED")
	if got := s.source("repo"); got.Asked != 1 || !got.Attended {
		t.Errorf("asked %d times, by a user %v", got.Asked, got.Attended)
	}
	s.looked("repo", content.SourceStatus{State: content.SourceInSync})

	forge := s.as("")
	body := `{"ref":"refs/heads/main"}`
	mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
	mac.Write([]byte(body))
	signed := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	call := func(name, header, value string, want int) {
		t.Helper()
		forge.do("POST", "/api/v1/template-sources/"+name+"/webhook", body, header, value).want(want)
	}
	before := s.revision()
	call("repo", "X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64), 401)
	call("repo", "X-Hub-Signature-256", "nonsense", 401)
	call("repo", "X-Gitlab-Token", "0123456789abcdeX", 401)
	call("repo", "X-Other", "", 401)
	call("quiet", "X-Gitlab-Token", "", 401)
	call("none", "X-Gitlab-Token", "0123456789abcdef", 401) // same response as for an existing source: strangers must not learn which exist
	call("none", "X-Gitlab-Token", "", 401)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused call wrote something: %v", keys)
	}
	call("repo", "X-Hub-Signature-256", signed, 202)
	if got := s.source("repo"); got.Asked != 2 || got.Attended {
		t.Errorf("asked %d times, by a user %v", got.Asked, got.Attended)
	}
	call("repo", "X-Hub-Signature-256", signed, 202) // repeated before it was processed
	if got := s.source("repo").Asked; got != 2 {
		t.Errorf("a repeated call asked again: %d times", got)
	}
	s.looked("repo", content.SourceStatus{State: content.SourceInSync})
	call("repo", "X-Gitlab-Token", "0123456789abcdef", 202)
	if got := s.source("repo").Asked; got != 3 {
		t.Errorf("asked %d times", got)
	}
}
