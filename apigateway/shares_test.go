package apigateway

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// linkOf returns the path of a link in the response.
func (r *reply) linkOf(field string) string {
	r.t.Helper()
	u, err := url.Parse(fmt.Sprint(r.field(field)))
	if err != nil {
		r.t.Fatal(err)
	}
	return u.RequestURI()
}

// leaking adds a crash whose output has a password.
func (s *site) leaking(n int) string {
	s.t.Helper()
	return s.crash(n, time.Hour, func(c *reports.Crash) { c.Cause = "cannot log in with password=hunter2 <script>alert(1)</script>" }).ID
}

func TestACrashIsSharedWithoutItsSecretsAndReadOnce(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	id := a.leaking(1)
	r := a.do("POST", "/api/v1/crashes/"+id+"/share", nil).want(201).is("burnAfterRead", true).is("isPrivate", false)
	if u := fmt.Sprint(r.field("url")); !strings.HasPrefix(u, a.url+"/s/") || r.field("rawUrl") != u+"/raw" || !strings.HasPrefix(fmt.Sprint(r.field("deleteUrl")), u+"?token=") {
		t.Errorf("%s", r.raw)
	}
	expires, err := time.Parse(time.RFC3339, fmt.Sprint(r.field("expiresAt")))
	if in := time.Until(expires); err != nil || in < 23*time.Hour || in > 25*time.Hour {
		t.Errorf("expires in %v, %v", in, err)
	}
	list := a.do("GET", "/api/v1/shares?kind=crash&activeOnly=true", nil).want(200).is("total", 1).is("data.0.kind", "CRASH").is("data.0.resourceId", id)
	list.is("data.0.sharedByUser", "admin").is("data.0.revocable", true).is("data.0.revokedAt", nil).is("data.0.url", r.field("url"))
	text := b.as("").do("GET", r.linkOf("rawUrl"), nil).want(200)
	if !strings.Contains(text.raw, "cannot log in with password=***") || strings.Contains(text.raw, "hunter2") || !strings.Contains(text.raw, "starting\n") {
		t.Errorf("%s", text.raw)
	}
	for _, s := range []*site{a, b.as("")} {
		s.do("GET", r.linkOf("url"), nil).want(404)
		s.do("GET", r.linkOf("rawUrl"), nil).want(404)
	}
	share := fmt.Sprint(r.field("shareId"))
	if got := a.do("GET", "/api/v1/shares/"+share, nil).want(200).is("revocable", false); got.field("readAt") == nil {
		t.Error(got.raw)
	}
	a.do("POST", "/api/v1/shares/"+share+"/revoke", nil).want(422).is("error.code", "SHARE_NOT_REVOCABLE")
	a.do("GET", "/api/v1/shares?activeOnly=true", nil).want(200).is("total", 0)
	if _, err := store.Get(t.Context(), a.store, keys.ShareText(share)); !errs.Is(err, errs.NotFound) {
		t.Errorf("the text is there still: %v", err)
	}
	if audit := a.do("GET", "/api/v1/audit", nil).want(200); !strings.Contains(audit.raw, "share.create") || !strings.Contains(audit.raw, "share.read") || strings.Contains(audit.raw, share) {
		t.Error(audit.raw)
	}
}

func TestOfManyReadersOnTwoGatewaysOneGetsWhatIsReadOnce(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	r := a.do("POST", "/api/v1/crashes/"+a.leaking(1)+"/share", nil).want(201)
	var all sync.WaitGroup
	statuses := make([]int, 12)
	for n := range statuses {
		s := []*site{a.as(""), b.as("")}[n%2]
		all.Go(func() {
			if got, err := s.try("GET", r.linkOf([]string{"url", "rawUrl"}[n%3%2])+"?read=1", nil); err == nil {
				statuses[n] = got.status
			}
		})
	}
	all.Wait()
	got := map[int]int{}
	for _, status := range statuses {
		got[status]++
	}
	if got[200] != 1 || got[404] != 11 {
		t.Errorf("statuses %v", got)
	}
}

func TestAPageThatCanBeReadOnceIsNotReadByWhoLooksAtTheLink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/crashes/"+s.leaking(1)+"/share", nil).want(201)
	anybody, page := s.as(""), r.linkOf("url")
	for range 2 {
		for _, link := range []string{page, page + "?read=0"} {
			got := anybody.do("GET", link, nil).want(200).naming(`<a href="?read=1"`)
			if strings.Contains(got.raw, "starting") || !strings.HasPrefix(got.header.Get("Content-Security-Policy"), "default-src 'none'") || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v %s", got.header, got.raw)
			}
		}
	}
	s.do("GET", "/api/v1/shares", nil).want(200).is("data.0.readAt", nil)
	anybody.do("GET", page+"?read=1", nil).want(200).naming("starting").naming("The text is now deleted")
	for _, link := range []string{page, page + "?read=1", r.linkOf("rawUrl")} {
		anybody.do("GET", link, nil).want(404)
	}
	private := s.do("POST", "/api/v1/crashes/abc001-1-1/share", `{"isPrivate":true}`).want(201).linkOf("url")
	anybody.do("GET", private, nil).want(401)
	s.do("GET", private, nil).want(200).naming("Read it now")
	stays := s.do("POST", "/api/v1/crashes/abc001-1-1/share", `{"burnAfterRead":false}`).want(201).linkOf("url")
	anybody.do("GET", stays, nil).want(200).naming("starting")
}

func TestAShareThatIsAskedForTwiceIsMadeAndToldOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := "/api/v1/crashes/" + s.leaking(1) + "/share"
	s.do("POST", path, nil, "Idempotency-Key", "k").want(201)
	s.do("POST", path, nil, "Idempotency-Key", "k").want(409).is("error.code", "SHOWN_ONCE")
	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 1)
}

func TestASharedPageRunsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/crashes/"+s.leaking(1)+"/share", `{"expiry":"never","burnAfterRead":false}`).want(201).is("expiresAt", nil)
	for range 2 {
		page := s.as("").do("GET", r.linkOf("url"), nil).want(200)
		if strings.Contains(page.raw, "<script") || !strings.Contains(page.raw, "&lt;script&gt;") || !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
			t.Error(page.raw)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := page.header.Get(name); !strings.HasPrefix(got, want) {
				t.Errorf("%s is %q", name, got)
			}
		}
		raw := s.as("").do("GET", r.linkOf("rawUrl"), nil).want(200)
		if !strings.HasPrefix(raw.header.Get("Content-Type"), "text/plain") || raw.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%v", raw.header)
		}
	}
}

func TestAShareIsRevokedDeletedAndExpires(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	crash := s.leaking(1)
	share := func(body string) (id, link string, r *reply) {
		r = s.do("POST", "/api/v1/crashes/"+crash+"/share", body).want(201)
		return fmt.Sprint(r.field("shareId")), r.linkOf("rawUrl"), r
	}
	revoked, link, _ := share(`{"burnAfterRead":false}`)
	s.do("POST", "/api/v1/shares/"+revoked+"/revoke", nil).want(200).is("revocable", false)
	s.do("POST", "/api/v1/shares/"+revoked+"/revoke", nil).want(409).is("error.code", "SHARE_ALREADY_REVOKED")
	s.as("").do("GET", link, nil).want(404)

	deleted, link, r := share(`{}`)
	anybody := s.as("")
	anybody.do("DELETE", "/s/"+deleted+"?token=x", nil).want(403)
	anybody.do("DELETE", "/s/"+deleted+"?token=", nil).want(403)
	anybody.do("DELETE", r.linkOf("deleteUrl"), nil).want(204)
	anybody.do("DELETE", r.linkOf("deleteUrl"), nil).want(404)
	anybody.do("GET", link, nil).want(404)

	expired, link, _ := share(`{"expiry":"1h"}`)
	record, err := store.Get(t.Context(), s.store, keys.Share(expired))
	if err != nil {
		t.Fatal(err)
	}
	record.ExpiresAt = time.Now().Add(-time.Second)
	s.commit(store.Replace(keys.Share(expired), record, record.ModRev))
	anybody.do("GET", link, nil).want(404)
	s.do("POST", "/api/v1/shares/"+expired+"/revoke", nil).want(422)
	if err := s.gateway.shares.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{revoked, deleted, expired} {
		if _, err := store.Get(t.Context(), s.store, keys.ShareText(id)); !errs.Is(err, errs.NotFound) {
			t.Errorf("the text of %s is there still: %v", id, err)
		}
	}
	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 3)
	for _, id := range []string{"x", strings.Repeat("A", 26), "..%2Fusers%2Fadmin"} {
		anybody.do("GET", "/s/"+id, nil).want(404)
		s.do("GET", "/api/v1/shares/"+id, nil).want(404)
		s.do("POST", "/api/v1/shares/"+id+"/revoke", nil).want(404)
		anybody.do("DELETE", "/s/"+id+"?token=x", nil).want(404)
	}
}

func TestAPrivateShareIsForWhoMayShare(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/crashes/"+s.leaking(1)+"/share", `{"isPrivate":true}`).want(201).is("isPrivate", true)
	s.as("").do("GET", r.linkOf("rawUrl"), nil).want(401)
	s.as("nobody's").do("GET", r.linkOf("rawUrl"), nil).want(401)
	s.user("vera", "VIEWER").do("GET", r.linkOf("rawUrl"), nil).want(403)
	s.user("otto", "OPERATOR").do("GET", r.linkOf("rawUrl"), nil).want(200)
}

func TestSharesAreToldToWhoMaySeeWhatTheyAreOf(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(0))
	s.gateway.cfg.Log.Warn("something to share")
	const private = `{"isPrivate":true}`
	logs := s.do("POST", "/api/v1/system/logs/share", private).want(201)
	diagnosis := s.do("POST", "/api/v1/system/diagnostics/share", private).want(201)
	crash := s.do("POST", "/api/v1/crashes/"+s.leaking(1)+"/share", `{"isPrivate":true,"burnAfterRead":false}`).want(201)
	s.do("POST", "/api/v1/roles", `{"name":"SHARER","permissions":["share.invoke"]}`).want(201)
	operator, sharer := s.user("otto", "OPERATOR"), s.user("sam", "SHARER")

	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 3)
	operator.do("GET", "/api/v1/shares", nil).want(200).is("total", 1).is("data.0.kind", "CRASH")
	operator.do("GET", "/api/v1/shares?kind=DIAGNOSTICS", nil).want(200).is("total", 0)
	sharer.do("GET", "/api/v1/shares", nil).want(200).is("total", 0)
	for _, r := range []*reply{logs, diagnosis} {
		one := "/api/v1/shares/" + fmt.Sprint(r.field("shareId"))
		for _, other := range []*site{operator, sharer} {
			other.do("GET", one, nil).want(404)
			other.do("GET", r.linkOf("url"), nil).want(403)
			other.do("GET", r.linkOf("rawUrl"), nil).want(403)
		}
		operator.do("POST", one+"/revoke", nil).want(404)
		s.do("GET", one, nil).want(200).is("readAt", nil)
		s.do("GET", r.linkOf("rawUrl"), nil).want(200)
	}
	sharer.do("GET", crash.linkOf("rawUrl"), nil).want(403)
	operator.do("GET", "/api/v1/shares/"+fmt.Sprint(crash.field("shareId")), nil).want(200)
	operator.do("GET", crash.linkOf("rawUrl"), nil).want(200)
	operator.do("POST", "/api/v1/shares/"+fmt.Sprint(crash.field("shareId"))+"/revoke", nil).want(200)
	for _, r := range []*reply{logs, diagnosis} { // expired shares reveal as little
		operator.do("POST", "/api/v1/shares/"+fmt.Sprint(r.field("shareId"))+"/revoke", nil).want(404)
	}
}

func TestASharedDiagnosisWithLogsIsForWhoMaySeeLogs(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(0))
	s.gateway.cfg.Log.Warn("something of the log")
	s.do("POST", "/api/v1/roles", `{"name":"KEEPER","permissions":["share.invoke","share.revoke","system.settings"]}`).want(201)
	keeper := s.user("kim", "KEEPER")
	const private, path = `{"isPrivate":true}`, "/api/v1/system/diagnostics/share"
	with, without := s.do("POST", path, private).want(201), keeper.do("POST", path, private).want(201)

	shown := "/api/v1/shares/" + fmt.Sprint(with.field("shareId"))
	keeper.do("GET", "/api/v1/shares", nil).want(200).is("total", 1).is("data.0.id", without.field("shareId"))
	keeper.do("GET", shown, nil).want(404)
	keeper.do("GET", with.linkOf("rawUrl"), nil).want(403)
	keeper.do("POST", shown+"/revoke", nil).want(404)
	if text := keeper.do("GET", without.linkOf("rawUrl"), nil).want(200).raw; strings.Contains(text, "something of the log") {
		t.Error(text)
	}
	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 2)
	s.do("GET", with.linkOf("rawUrl"), nil).want(200).naming("something of the log")
}

func TestWhoMaySeeAndShareSharesAndOthersDoNot(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(0))
	s.group("lobby", nil)
	node := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := string(s.start("lobby"))
	s.status(fleet.InstanceID(id), "node-1", fleet.Status{State: fleet.Online})
	node.lines = []string{"one", "rcon.password=hunter2", "three"}
	crash := s.leaking(1)
	s.gateway.cfg.Log.Warn("test \"quoted\"", "url", "https://user:hunter2@host", "error", fmt.Errorf("two\nlines"))
	s.gateway.cfg.Log.Info("test not chosen")
	operator, viewer := s.user("otto", "OPERATOR"), s.user("vera", "VIEWER")
	for _, c := range []struct {
		path, body, kind, resource, text string
		operator                         int
	}{
		{"/api/v1/services/lobby-1/console/share", `{"limit":2}`, "INSTANCE_CONSOLE", "lobby-1", "rcon.password=***\nthree\n", 201},
		{"/api/v1/instances/" + id + "/console/share", ``, "INSTANCE_CONSOLE", "lobby-1", "one\n", 201},
		{"/api/v1/crashes/" + crash + "/share", ``, "CRASH", crash, "exit code: 1", 201},
		{"/api/v1/system/logs/share", `{"level":"warn"}`, "CONTROLLER_LOGS", "", `test "quoted" url="https://***@host" | two lines`, 403},
		{"/api/v1/nodes/node-1/logs/share", `{"expiry":"30d"}`, "DAEMON_LOGS", "node-1", "", 403},
	} {
		r := s.do("POST", c.path, c.body).want(201).is("burnAfterRead", true)
		text := s.as("").do("GET", r.linkOf("rawUrl"), nil).want(200)
		if !strings.Contains(text.raw, c.text) || strings.Contains(text.raw, "hunter2") || strings.Contains(text.raw, "not chosen") {
			t.Errorf("%s: %s", c.path, text.raw)
		}
		s.do("GET", "/api/v1/shares/"+fmt.Sprint(r.field("shareId")), nil).want(200).is("kind", c.kind).is("resourceId", c.resource)
		operator.do("POST", c.path, c.body).want(c.operator)
		viewer.do("POST", c.path, c.body).want(403)
		s.do("POST", c.path, `{"expiry":"2h"}`).want(422).naming("expiry")
		s.do("POST", c.path, `{"x":1}`).want(400)
	}
	viewer.do("GET", "/api/v1/shares", nil).want(403)
	s.do("GET", "/api/v1/shares?kind=x", nil).want(400)
	s.do("POST", "/api/v1/system/logs/share", `{"level":"loud"}`).want(400)
	s.do("POST", "/api/v1/crashes/none/share", nil).want(404)
	s.do("POST", "/api/v1/nodes/none/logs/share", nil).want(404)
	s.do("POST", "/api/v1/services/none/console/share", nil).want(404)
	s.loseNode("node-1")
	s.do("POST", "/api/v1/nodes/node-1/logs/share", nil).want(503)
}

func TestDisabledSharingBlocksCreateAndRead(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	r := a.do("POST", "/api/v1/crashes/"+a.leaking(1)+"/share", nil).want(201)
	off := newSiteOn(t, a.etcd, func(c *Config) { c.NoShares = true }).as(a.token)
	off.do("POST", "/api/v1/crashes/abc001-1-1/share", nil).want(409).is("error.code", "SHARE_DISABLED")
	off.do("GET", r.linkOf("url"), nil).want(404)
	off.do("GET", r.linkOf("rawUrl"), nil).want(404)
	a.do("GET", "/api/v1/shares", nil).want(200).is("total", 1)
	off.do("POST", "/api/v1/shares/"+fmt.Sprint(r.field("shareId"))+"/revoke", nil).want(200) // nothing to revoke after it was read
}

func TestWhatBecameOfAShareIsToldForAMonthFromItsEndAndTakesNoRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const day = 24 * time.Hour
	now := time.Now()
	put := func(name string, size int, made, ended time.Duration) string {
		t.Helper()
		id := strings.Repeat(name, 26)
		record := account.Share{ID: id, Kind: account.ShareCrash, StoredBytes: size, At: now.Add(-made)}
		if ended > 0 {
			record.RevokedAt = now.Add(-ended)
		}
		s.commit(store.Create(keys.Share(id), record))
		return id
	}
	late, long := put("A", 32<<20, 40*day, day), put("B", 1, 40*day, 31*day)
	active := put("C", 1, 50*day, 0)
	if err := s.gateway.shares.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/api/v1/shares/"+late, nil).want(200).is("revocable", false)
	s.do("GET", "/api/v1/shares/"+long, nil).want(404)
	s.do("GET", "/api/v1/shares/"+active, nil).want(200).is("revocable", true)
}

func TestSharesThatHaveEndedPushOutNoneThatCanBeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := time.Now()
	active := strings.Repeat("A", 26)
	s.commit(store.Create(keys.Share(active), account.Share{ID: active, Kind: account.ShareCrash, At: now.Add(-time.Hour)}))
	var writes []store.Write
	for n := range 205 {
		id := fmt.Sprintf("%026d", n)
		at := now.Add(time.Duration(n-205) * time.Second)
		writes = append(writes, store.Create(keys.Share(id), account.Share{ID: id, Kind: account.ShareCrash, At: at, RevokedAt: at}))
		if len(writes) == 60 || n == 204 {
			s.commit(writes...)
			writes = nil
		}
	}
	if err := s.gateway.shares.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/api/v1/shares/"+active, nil).want(200).is("revocable", true)
	for n, want := range map[int]bool{4: false, 5: true} { // the oldest expired one was removed
		if _, err := store.Get(t.Context(), s.store, keys.Share(fmt.Sprintf("%026d", n))); (err == nil) != want {
			t.Errorf("number %d of those that ended: %v, want that it is there: %v", n, err, want)
		}
	}
}

func TestSharesThatCannotBeReadHideNoOthersAndMakeRoomFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := time.Now()
	id := func(n int) string { return strings.Repeat(string(rune('A'+n)), 26) }
	damaged := map[string]string{id(0): "what nobody can read", id(1): "{}"}
	for name, text := range damaged {
		for _, key := range []string{keys.Share(name).String(), keys.ShareText(name).String()} {
			if _, err := s.etcd.Raw().Put(t.Context(), key, text); err != nil {
				t.Fatal(err)
			}
		}
		s.do("GET", "/api/v1/shares/"+name, nil).want(500)
		s.do("POST", "/api/v1/shares/"+name+"/revoke", nil).want(500)
		s.as("").do("GET", "/s/"+name, nil).want(500)
	}
	s.commit(
		store.Create(keys.Share(id(2)), account.Share{ID: id(2), Kind: account.ShareCrash, At: now, ExpiresAt: now.Add(-time.Minute)}),
		store.Create(keys.Share(id(3)), account.Share{ID: id(3), Kind: account.ShareCrash, At: now, RevokedAt: now.Add(-40 * 24 * time.Hour)}),
	)
	if _, err := s.etcd.Raw().Put(t.Context(), keys.ShareText(id(2)).String(), "what nobody can read"); err != nil {
		t.Fatal(err)
	}
	if err := s.gateway.shares.Tidy(t.Context()); err == nil || !strings.Contains(err.Error(), id(0)) || !strings.Contains(err.Error(), id(1)[:8]) {
		t.Errorf("what is damaged is not named: %v", err)
	}
	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 1).is("data.0.id", id(2))
	if _, err := store.Get(t.Context(), s.store, keys.ShareTextMark(id(2))); !errs.Is(err, errs.NotFound) {
		t.Errorf("a text that cannot be read, and has expired, is there still: %v", err)
	}
	s.commit(store.Create(keys.Share(id(4)), account.Share{ID: id(4), Kind: account.ShareCrash, At: now.Add(-time.Hour), StoredBytes: 32 << 20}))
	if err := s.gateway.shares.Tidy(t.Context()); err != nil {
		t.Errorf("they do not make room: %v", err)
	}
	for name := range damaged {
		s.do("GET", "/api/v1/shares/"+name, nil).want(404)
		if _, err := store.Get(t.Context(), s.store, keys.ShareTextMark(name)); !errs.Is(err, errs.NotFound) {
			t.Errorf("the text of %s is there still: %v", name, err)
		}
	}
	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 2)
}

func TestThereAreSoManySharesAndTheOldestMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.leaking(1)
	first := fmt.Sprint(s.do("POST", "/api/v1/crashes/abc001-1-1/share", nil).want(201).field("shareId"))
	record, err := store.Get(t.Context(), s.store, keys.Share(first))
	if err != nil {
		t.Fatal(err)
	}
	var writes []store.Write
	for n := range 99 {
		for _, m := range []int{2 * n, 2*n + 1} {
			other := record
			other.ID = fmt.Sprintf("%026d", m)
			other.At = record.At.Add(time.Duration(m+1) * time.Second)
			writes = append(writes, store.Create(keys.Share(other.ID), other))
		}
		if n%30 == 29 || n == 98 {
			s.commit(writes...)
			writes = nil
		}
	}
	if err := s.gateway.shares.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/api/v1/shares/"+first, nil).want(200)
	large := record
	large.ID, large.At, large.StoredBytes = strings.Repeat("L", 26), record.At.Add(time.Hour), 32<<20
	s.commit(store.Create(keys.Share(large.ID), large))
	if err := s.gateway.shares.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/api/v1/shares/"+large.ID, nil).want(200)
	s.do("GET", "/api/v1/shares", nil).want(200).is("total", 1)
	if _, err := store.Get(t.Context(), s.store, keys.ShareText(first)); !errs.Is(err, errs.NotFound) {
		t.Errorf("the text of the oldest: %v", err)
	}
}
