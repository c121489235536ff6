package apigateway

import (
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// filesSite is a site with one placed instance, whose agent changes files.
func filesSite(t *testing.T) (*site, *agent, string) {
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.status(s.start("lobby"), "node-1", fleet.Status{State: fleet.Stopped})
	return s, agent, "/api/v1/services/lobby-1/files"
}

func TestFilesOfAnInstanceAreChangedByItsAgent(t *testing.T) {
	t.Parallel()
	s, agent, base := filesSite(t)
	r := s.do("PUT", base+"/content?path=server.properties", `{"content":"a=1"}`).want(200).is("status", "saved").is("path", "server.properties").
		is("sizeBytes", 3).is("version", "v1").is("etag", "next").is("replacedAtNextStart", true)
	if r.header.Get("ETag") != `"next"` {
		t.Errorf("%v", r.header)
	}
	s.do("PUT", base+"/content?path=b&keep=false", `{"content":""}`).want(200).is("version", nil)
	s.do("POST", base+"/mkdir", `{"path":"plugins"}`).want(200).is("status", "created")
	s.do("POST", base+"/rename", `{"from":"a","to":"b"}`, "If-Match", `"now"`).want(200).is("status", "renamed").is("from", "a").is("path", "b")
	s.do("DELETE", base+"?path=b&keep=false", nil).want(200).is("status", "deleted")
	s.do("POST", base+"/restore", `{"version":"v1"}`).want(200).is("status", "restored")
	s.do("GET", base+"/versions?path=a", nil).want(200).is("versions.0.id", "v1").is("versions.0.by", "write").is("versions.0.sizeBytes", 7)
	want := []client.FileEdit{
		{Op: "mkdir", Path: "plugins"}, {Op: "rename", Path: "a", To: "b", IfMatch: "now"}, {Op: "delete", Path: "b", Discard: true}, {Op: "restore", Version: "v1"},
	}
	for n, e := range agent.edits {
		if e != want[n] {
			t.Errorf("%+v, want %+v", e, want[n])
		}
	}
	if len(agent.edits) != len(want) || agent.written["server.properties"] != "a=1" {
		t.Errorf("%v, %v", agent.edits, agent.written)
	}
	list := s.do("GET", "/api/v1/audit?pageSize=20", nil).want(200)
	list.naming("server.properties (3 bytes)")
	list.naming("a to b")
	list.naming("instance.file.delete")
	if strings.Contains(list.raw, "a=1") {
		t.Error("the audit has the content")
	}
}

func TestARefusedChangeOfFilesChangesNothing(t *testing.T) {
	t.Parallel()
	s, agent, base := filesSite(t)
	put := func(query, body string, header ...string) *reply {
		return s.do("PUT", base+"/content?"+query, body, header...)
	}
	const text = `{"content":"x"}`
	put("path=a", text, "If-Match", `"old"`).want(412)
	put("path=taken", text, "If-None-Match", "*").want(412)
	put("path=dynamic", text).want(409)
	put("path=full", text).oneOf(409, 429)
	put("path=../x", text).want(400).is("error.code", "PATH_OUTSIDE_INSTANCE")
	put("", text).want(400).naming("path")
	put("path=a&keep=maybe", text).want(400).naming("keep")
	put("path=a", `{}`).want(422).naming("content")
	put("path=a", `{"content":"`+strings.Repeat("x", 1<<20+1)+`"}`).want(413)
	put("path=a&dryRun=true", text).want(200).is("status", "checked").is("dryRun", true)
	s.do("DELETE", base+"?path=a", nil, "If-Match", `"old"`).want(412)
	s.do("DELETE", base, nil).want(400).naming("path")
	s.do("DELETE", base+"?path=a&dryRun=true", nil).want(200).is("status", "checked")
	s.do("POST", base+"/rename", `{"from":"a"}`).want(400).naming("to")
	s.do("POST", base+"/rename", `{"from":"a","to":"b"}`, "If-Match", `"old"`).want(412)
	s.do("POST", base+"/mkdir", `{}`).want(400).naming("path")
	s.do("POST", base+"/restore", `{"version":"v9"}`).want(404).naming("version")
	s.do("POST", base+"/restore", `{}`).want(400).naming("version")
	s.do("PUT", "/api/v1/services/lobby-9/files/content?path=a", text).want(404).is("error.code", "INSTANCE_NOT_FOUND")
	s.do("POST", "/api/v1/roles", `{"name":"READER","permissions":["instances.view","instances.files"]}`).want(201)
	reader := s.user("reader", "READER")
	reader.do("PUT", base+"/content?path=a", text).want(403)
	reader.do("DELETE", base+"?path=a", nil).want(403)
	reader.do("GET", base+"/versions", nil).want(200)
	if len(agent.written)+len(agent.edits) != 0 {
		t.Errorf("%v, %v", agent.written, agent.edits)
	}
	s.loseNode("node-1")
	put("path=a", text).want(503).is("error.code", "DAEMON_UNREACHABLE")
}

// uploadOf sends a form in chunks, as it is written, with files by name.
func (s *site) uploadOf(target string, files ...[2]any) *http.Response {
	s.t.Helper()
	from, to := io.Pipe()
	form := multipart.NewWriter(to)
	go func() {
		for _, f := range files {
			part, err := form.CreateFormFile("file", f[0].(string))
			if err == nil {
				_, err = io.Copy(part, f[1].(io.Reader))
			}
			if err != nil {
				_ = to.CloseWithError(err)
				return
			}
		}
		_ = to.CloseWithError(form.Close())
	}()
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+target, from)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

func TestAnUploadIsStreamedToTheAgent(t *testing.T) {
	t.Parallel()
	s, agent, base := filesSite(t)
	const size = 20 << 20
	large := func() io.Reader { return io.LimitReader(spaces{}, size) }
	if got := s.uploadOf(base+"/upload?path=worlds", [2]any{"../../world.zip", large()}); got.StatusCode != 200 {
		t.Errorf("%d", got.StatusCode)
	}
	if got := len(agent.written["worlds/world.zip"]); got != size || len(agent.written) != 1 {
		t.Errorf("%d bytes arrived", got)
	}
	if got := s.uploadOf(base+"/upload", [2]any{"a", strings.NewReader("1")}, [2]any{"b", strings.NewReader("2")}); got.StatusCode != 400 {
		t.Errorf("two files: %d", got.StatusCode)
	}
	if got := s.uploadOf(base + "/upload"); got.StatusCode != 400 {
		t.Errorf("no file: %d", got.StatusCode)
	}
	s.do("POST", base+"/upload?extract=true", nil).want(400).naming("extract")
	s.do("POST", base+"/upload", `{}`).want(400)
	if len(agent.written) != 1 {
		t.Errorf("%d files were written", len(agent.written))
	}
}

func TestFilesOfAnInstanceThatMovesAreNotChanged(t *testing.T) {
	t.Parallel()
	s, agent, base := filesSite(t)
	refused := func(why string) {
		t.Helper()
		s.do("PUT", base+"/content?path=a", `{"content":"x"}`).want(409).naming(why)
		s.do("PUT", base+"/content?path=a&dryRun=true", `{"content":"x"}`).want(409).naming(why)
		s.do("POST", base+"/mkdir", `{"path":"plugins"}`).want(409).naming(why)
	}
	i, _ := s.view.Snapshot().Find("lobby-1")
	id := i.Intent.ID
	m := move.Move{ID: "m1", Instance: id, Name: "lobby-1", Group: "lobby", Source: "node-1", Target: "node-2", Step: move.Copying}
	rev := s.commit(store.Create(keys.Move(id), m))
	refused("moves to node node-2")
	m.Step = move.Done
	s.commit(store.Replace(keys.Move(id), m, rev))
	s.edit(id, func(next *fleet.Intent) { next.MovesTo = &fleet.DataCopy{Node: "node-2", Generation: next.Generation} })
	refused("its files are on node node-2")
	s.edit(id, func(next *fleet.Intent) { next.MovesTo = nil })
	s.do("POST", base+"/mkdir", `{"path":"plugins"}`).want(200)
	if len(agent.edits) != 1 || len(agent.written) != 0 {
		t.Errorf("%v, %v", agent.edits, agent.written)
	}
}
