package apigateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/background/notices/webhook"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// receiver is the target of notices.
type receiver struct {
	url string

	mu   sync.Mutex
	got  []map[string]any
	head []http.Header
	// answer is called with the number of the request, from 1.
	answer func(n int, w http.ResponseWriter)
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		var body map[string]any
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		r.mu.Lock()
		r.got, r.head = append(r.got, body), append(r.head, req.Header)
		n, answer := len(r.got), r.answer
		r.mu.Unlock()
		if at := req.Header.Get(webhook.HeaderTimestamp); at != "" {
			var seconds int64
			_, _ = fmt.Sscan(at, &seconds)
			if req.Header.Get(webhook.HeaderSignature) != webhook.Sign(noticeSecret, seconds, raw) {
				t.Errorf("the signature of %s is wrong", raw)
			}
		}
		answer(n, w)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// groups returns the groups of the messages of a type, in order of arrival.
func (r *receiver) groups(eventType string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.got {
		if body["type"] == eventType {
			out = append(out, fmt.Sprint(body["group"]))
		}
	}
	return out
}

func (r *receiver) answers(answer func(n int, w http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// untilGroups waits until events of exactly these groups have arrived, first in this order. Some may have
// arrived again.
func (r *receiver) untilGroups(t *testing.T, eventType string, want ...string) {
	t.Helper()
	await.That(t, "notices about "+strings.Join(want, ", "), func() string {
		got := r.groups(eventType)
		var first []string
		for _, g := range got {
			if !slices.Contains(first, g) {
				first = append(first, g)
			}
		}
		return await.Unless(slices.Equal(first, want), "%v arrived", got)
	})
}

const noticeSecret = "0123456789abcdef"

// noticeSite is a site that may send to the receivers of tests.
func noticeSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.allowLoopback()
	return s
}

func (s *site) allowLoopback() {
	s.t.Helper()
	if _, err := s.view.WaitRev(s.t.Context(), egresstest.AllowLoopback(s.t, s.store)); err != nil {
		s.t.Fatal(err)
	}
}

func TestANoticeIsMadeReadChangedAndRemoved(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	s.group("lobby", nil)
	const path = "/api/v1/notices/ops"
	body := `{"name":"ops","url":"https://hooks.example/token","secret":"` + noticeSecret + `","events":["GROUP_*"],"groups":["lobby"],"enabled":false}`
	rev := s.revision()
	s.do("POST", "/api/v1/notices?dryRun=true", body).want(200).is("action", "create").naming(`"field":"events"`)
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("GET", "/api/v1/notices", nil).want(200).is("total", 0)
	made := s.do("POST", "/api/v1/notices", body).want(201).is("url", "https://hooks.example/***").is("signed", true).
		is("format", "json").is("minSeverity", "info").is("delivery.gateway", nil).is("updatedBy", "admin")
	if made.header.Get("Location") != path {
		t.Errorf("it is at %q", made.header.Get("Location"))
	}
	s.do("POST", "/api/v1/notices", body).want(409)
	read := s.do("GET", path, nil).want(200)
	s.do("PUT", path, read.raw).want(200)
	if now := s.do("GET", path, nil); now.header.Get("ETag") != read.header.Get("ETag") || now.raw != read.raw {
		t.Error("writing back what was read changed it")
	}
	rev = s.revision()
	s.do("PATCH", path+"?dryRun=true", `{"minSeverity":"warning"}`).want(200).is("action", "update").naming("minSeverity")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("PATCH", path, `{"minSeverity":"warning","groups":null}`, "If-Match", read.header.Get("ETag")).want(200).is("minSeverity", "warning").is("groups", []any{}).is("signed", true)
	s.do("PATCH", path, `{"description":"x"}`, "If-Match", read.header.Get("ETag")).want(412)
	s.do("PATCH", path, `{"secret":null,"format":"slack","url":"https://hooks.example/other"}`).want(200).is("signed", false).is("format", "slack")
	s.do("PATCH", "/api/v1/notices/none", `{}`).want(404)
	for _, at := range []string{path, "/api/v1/notices", "/api/v1/audit?pageSize=50", "/api/v1/history/notice/ops"} {
		if r := s.do("GET", at, nil).want(200); strings.Contains(r.raw, noticeSecret) || strings.Contains(r.raw, "token\"") && strings.Contains(r.raw, "hooks.example/token") {
			t.Errorf("%s shows the secret or the URL: %s", at, r.raw)
		}
	}
	s.do("GET", "/api/v1/history/notice/ops", nil).want(200).is("total", 3)
	s.do("DELETE", path+"?dryRun=true", nil).want(200).is("action", "delete")
	s.do("DELETE", path, nil).want(204)
	s.do("DELETE", path, nil).want(404)
	s.do("GET", path, nil).want(404)
	s.do("POST", path+"/test", nil).want(404)
}

func TestABadNoticeIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/notices/there", `{"url":"https://host/x","events":["*"],"format":"discord","enabled":false}`).want(201)
	rev := s.revision()
	for field, body := range map[string]string{
		"url is missing":      `{"events":["*"]}`,
		"url must be":         `{"events":["*"],"url":"file:///etc/passwd"}`,
		"url leads to":        `{"events":["*"],"url":"http://169.254.169.254/latest"}`,
		"a loopback address":  `{"events":["*"],"url":"http://[::1]:80/"}`,
		"url is shortened":    `{"events":["*"],"url":"https://other/***"}`,
		"events is empty":     `{"url":"https://host/"}`,
		"events[0] matches":   `{"url":"https://host/","events":["PLAYER_CONNECTED"]}`,
		"events[1] matches":   `{"url":"https://host/","events":["*","nothing"]}`,
		"groups[0]":           `{"url":"https://host/","events":["*"],"groups":["nowhere"]}`,
		"format must be":      `{"url":"https://host/","events":["*"],"format":"xml"}`,
		"minSeverity must be": `{"url":"https://host/","events":["*"],"minSeverity":"high"}`,
		"secret must have":    `{"url":"https://host/","events":["*"],"secret":"short"}`,
		"secret has":          `{"url":"https://host/","events":["*"],"format":"slack","secret":"` + noticeSecret + `"}`,
	} {
		s.do("PUT", "/api/v1/notices/one", body).want(422).naming(field)
	}
	s.do("PUT", "/api/v1/notices/.one", `{"url":"https://host/","events":["*"]}`).want(422).naming("name")
	s.do("PUT", "/api/v1/notices/one", `{"url":7}`).want(400).naming("url")
	s.do("PUT", "/api/v1/notices/one", `{"to":"x"}`).want(400).naming("to")
	s.do("POST", "/api/v1/notices", `{"url":"https://host/","events":["*"]}`).want(422).naming("name")
	s.do("PATCH", "/api/v1/notices/there", `{"events":null}`).want(422).naming("events")
	s.do("PATCH", "/api/v1/notices/there", `{"url":null}`).want(422).naming("url")
	s.do("PATCH", "/api/v1/notices/there", `{"name":"other"}`).want(422).naming("name")
	s.do("PATCH", "/api/v1/notices/there", `{"to":"x"}`).want(400).naming("to")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

func TestATestOfANoticeAnswersWithTheStatus(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	r := newReceiver(t)
	s.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"secret":%q,"events":["GROUP_*"],"enabled":false}`, r.url+"/x", noticeSecret)).want(201)
	rev := s.revision()
	s.do("POST", "/api/v1/notices/ops/test?dryRun=true", nil).want(200).is("body.type", webhook.Test).is("body.notice", "ops")
	if moved := s.moved(rev); len(moved) != 0 || len(r.groups(webhook.Test)) != 0 {
		t.Errorf("a dry run wrote %v and sent %v", moved, r.groups(webhook.Test))
	}
	s.do("POST", "/api/v1/notices/ops/test", nil).want(200).is("delivered", true).is("statusCode", 204).is("error", nil)
	r.answers(func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	s.do("POST", "/api/v1/notices/ops/test", nil).want(200).is("delivered", false).is("statusCode", 500).naming("status 500")
	if n := len(r.groups(webhook.Test)); n != 2 {
		t.Errorf("%d tests arrived", n)
	}
	s.do("PATCH", "/api/v1/notices/ops", `{"url":"http://127.0.0.1:1/"}`).want(200)
	s.do("POST", "/api/v1/notices/ops/test", nil).want(200).is("delivered", false).is("statusCode", nil).naming("cannot be reached")
	s.do("GET", "/api/v1/audit?action=notice.test", nil).want(200).is("total", 3)
}

func TestANoticeTellsOfACrashLoop(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	r := newReceiver(t)
	s.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"secret":%q,"events":["*"],"minSeverity":"critical"}`, r.url, noticeSecret)).want(201)
	s.group("lobby", nil)
	s.commit(store.Create(keys.CrashLoop("lobby"), crashloop.Loop{Group: "lobby", GroupRevision: 1, Level: 1, Crashes: 5, Since: time.Now(), PausedAt: time.Now(), PausedUntil: time.Now().Add(time.Hour)}))
	r.untilGroups(t, "GROUP_CRASH_LOOP", "lobby")
	await.That(t, "the state of the notice", func() string {
		one := s.do("GET", "/api/v1/notices/ops", nil).want(200)
		return await.Unless(one.field("delivery.delivered") == 1.0 && one.field("delivery.lastStatus") == 204.0 && one.field("delivery.failures") == 0.0, "%s", one.raw)
	})
	if all := r.groups("GROUP_CREATED"); len(all) != 0 {
		t.Errorf("less urgent events of %v were sent", all)
	}
}

func TestANoticeIsRetriedAndThenAProblem(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	r := newReceiver(t)
	r.answers(func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) })
	s.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"]}`, r.url)).want(201)
	s.group("a", nil)
	s.group("b", nil)
	await.That(t, "the problem", func() string {
		p := s.do("GET", "/api/v1/problems", nil).want(200)
		return await.Unless(strings.Contains(p.raw, `"NoticeFailing"`), "%s", p.raw)
	})
	r.answers(func(_ int, w http.ResponseWriter) {})
	r.untilGroups(t, "GROUP_CREATED", "a", "b")
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := r.head[0].Get(webhook.HeaderDelivery), r.head[len(r.head)-1].Get(webhook.HeaderDelivery)
	if r.head[1].Get(webhook.HeaderDelivery) != first || first == last {
		t.Errorf("the attempts of one event have the IDs %q and %q, another event has %q", first, r.head[1].Get(webhook.HeaderDelivery), last)
	}
}

func TestATargetThatHangsDelaysNoOtherNotice(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	hanging, r := newReceiver(t), newReceiver(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hanging.answers(func(int, http.ResponseWriter) { <-release })
	s.do("PUT", "/api/v1/notices/hangs", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"]}`, hanging.url)).want(201)
	s.do("PUT", "/api/v1/notices/works", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"]}`, r.url)).want(201)
	s.group("a", nil)
	hanging.untilGroups(t, "GROUP_CREATED", "a")
	s.group("b", nil)
	r.untilGroups(t, "GROUP_CREATED", "a", "b")
}

// holder returns the gateway that delivers a notice.
func (s *site) holder(name string) string {
	st, ok := s.view.Snapshot().NoticeStates.Get(name)
	if !ok {
		return ""
	}
	return st.Holder.Replica
}

func TestAnotherGatewayContinuesWithoutLosingAnEvent(t *testing.T) {
	t.Parallel()
	a := noticeSite(t)
	r := newReceiver(t)
	a.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"]}`, r.url)).want(201)
	await.That(t, "the holder", func() string { return await.Unless(a.holder("ops") == a.gateway.cfg.Replica, "%q", a.holder("ops")) })
	b := newSiteOn(t, a.etcd).as(a.token)
	a.group("one", nil)
	r.untilGroups(t, "GROUP_CREATED", "one")
	if b.holder("ops") != a.gateway.cfg.Replica {
		t.Errorf("%q took it over from a living gateway", b.holder("ops"))
	}
	r.answers(func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	a.group("two", nil)
	await.That(t, "an attempt", func() string { return await.Unless(slices.Contains(r.groups("GROUP_CREATED"), "two"), "none") })
	a.stop()
	await.That(t, "another holder", func() string { return await.Unless(b.holder("ops") == b.gateway.cfg.Replica, "%q", b.holder("ops")) })
	b.group("three", nil)
	r.answers(func(_ int, w http.ResponseWriter) {})
	r.untilGroups(t, "GROUP_CREATED", "one", "two", "three")
}

// TestADeadHolderIsReplacedAtItsPosition has the state that a killed gateway leaves.
func TestADeadHolderIsReplacedAtItsPosition(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	r := newReceiver(t)
	dead := cluster.Session{Service: serviceName, Replica: "dead", StartedAt: time.Now()}
	epoch := s.commit(store.Create(keys.Session(serviceName, "dead"), dead))
	s.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"],"enabled":false}`, r.url)).want(201)
	s.group("one", nil)
	done := s.revision()
	s.group("two", nil)
	s.commit(store.Create(keys.NoticeState("ops"), notice.State{Name: "ops", Holder: notice.Holder{Replica: "dead", Epoch: epoch}, Position: fmt.Sprint(done), Delivered: 7}))
	n, _ := s.view.Snapshot().Notices.Get("ops")
	on := *n
	on.Enabled = true
	s.commit(store.Replace(keys.Notice("ops"), on, n.ModRev))
	s.commit(store.Remove(keys.Session(serviceName, "dead"), epoch)) // its lease expires
	r.untilGroups(t, "GROUP_CREATED", "two")
	await.That(t, "the count", func() string {
		one := s.do("GET", "/api/v1/notices/ops", nil).want(200)
		return await.Unless(one.field("delivery.delivered") == 8.0, "%s", one.raw)
	})
}

func TestANoticeWhosePositionIsTooOldSaysThatEventsWereMissed(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	s := newSiteOn(t, etcd)
	s.token = s.login("admin", adminPassword)
	s.allowLoopback()
	r := newReceiver(t)
	s.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"]}`, r.url)).want(201)
	await.That(t, "the holder", func() string { return await.Unless(s.holder("ops") != "", "none") })
	s.stop()
	st, err := store.Get(t.Context(), s.store, keys.NoticeState("ops"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Group("one"), fleet.Group{Name: "one"})}}); err != nil {
		t.Fatal(err)
	}
	if st.Position == "" {
		t.Error("the position was not written")
	}
	etcd.Compact(t)
	b := newSiteOn(t, etcd)
	await.That(t, "the notice of missed events", func() string {
		return await.Unless(len(r.groups("RESYNC_REQUIRED")) > 0, "nothing arrived")
	})
	b.token = b.login("admin", adminPassword)
	b.group("two", nil)
	r.untilGroups(t, "GROUP_CREATED", "two")
}

func TestANoticeThatIsTurnedOnBeginsThere(t *testing.T) {
	t.Parallel()
	s := noticeSite(t)
	r := newReceiver(t)
	s.do("PUT", "/api/v1/notices/ops", fmt.Sprintf(`{"url":%q,"events":["GROUP_CREATED"]}`, r.url)).want(201)
	s.group("one", nil)
	r.untilGroups(t, "GROUP_CREATED", "one")
	s.do("PATCH", "/api/v1/notices/ops", `{"enabled":false}`).want(200)
	s.group("two", nil)
	s.do("PATCH", "/api/v1/notices/ops", `{"enabled":true}`).want(200)
	s.group("three", nil)
	r.untilGroups(t, "GROUP_CREATED", "one", "three")
	s.do("DELETE", "/api/v1/notices/ops", nil).want(204)
	if _, err := store.Get(t.Context(), s.store, keys.NoticeState("ops")); err == nil {
		t.Error("its state remains")
	}
}
