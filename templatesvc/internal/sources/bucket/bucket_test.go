package bucket_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is an S3 server with one bucket, behind a handler that may fail.
type site struct {
	t       *testing.T
	backend *s3mem.Backend
	url     string
	// before may answer a request instead of the server.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	// dialer connects to the server.
	dialer sources.Dialer
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, backend: s3mem.New(), dialer: sources.Dialer{Egress: egresstest.Loopback()}}
	if err := s.backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	real := gofakes3.New(s.backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := s.before.Load(); before != nil && (*before)(w, r) {
			return
		}
		real.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *site) answering(f func(http.ResponseWriter, *http.Request) bool) { s.before.Store(&f) }

func (s *site) put(key, content string) {
	s.t.Helper()
	if _, err := s.backend.PutObject("bucket", key, map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, strings.NewReader(content), int64(len(content)), nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) fetch(source content.TemplateSource, seen string) (told []string, h *sources.Holding, err error) {
	s.t.Helper()
	source.Kind, source.PathStyle = content.SourceS3, true
	if source.URL == "" {
		source.URL = s.url
	}
	if source.Bucket == "" {
		source.Bucket = "bucket"
	}
	r := sources.Request{
		Source: source, Seen: seen, Spool: s.t.TempDir(), Dialer: s.dialer,
		Credentials: content.SourceCredentials{AccessKey: "key", SecretKey: "secret"},
	}
	h, err = bucket.Fetch(s.t.Context(), r)
	if h == nil {
		return nil, nil, err
	}
	defer h.Close()
	for _, one := range h.Templates {
		var m content.Manifest
		m, err = one.Manifest(s.t.Context(), func(r io.Reader, _ int64) (content.Content, error) {
			b, err := io.ReadAll(r)
			return content.Content{Size: int64(len(b)), SHA256: string(b)}, err
		})
		if err != nil {
			break
		}
		for _, e := range m.Entries {
			told = append(told, fmt.Sprintf("%s/%s=%s", one.Ref, e.Path, e.SHA256))
		}
	}
	if left, _ := os.ReadDir(r.Spool); len(left) > 0 {
		s.t.Errorf("left on disk: %v", left)
	}
	return told, h, err
}

func zipped(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("conf/a")
	if err == nil {
		_, err = io.WriteString(f, "in a zip")
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTreesAndArchivesBelowAPrefixAreBrought(t *testing.T) {
	s := newSite(t)
	s.put("other/games/lobby/f", "no")
	s.put("all/games/lobby/conf/a", "1")
	s.put("all/games/lobby/world.zip", "a file of the tree")
	s.put("all/games/duel.zip", zipped(t))
	s.put("all/note", "in no template")
	const want = "[games/duel/conf/a=in a zip games/lobby/conf/a=1 games/lobby/world.zip=a file of the tree]"
	for _, prefix := range []string{"all", "all/"} {
		told, h, err := s.fetch(content.TemplateSource{Prefix: prefix}, "")
		if err != nil || fmt.Sprint(told) != want {
			t.Errorf("%v, %v\nwant %s", told, err, want)
		}
		if _, again, err := s.fetch(content.TemplateSource{Prefix: prefix}, h.Revision); again != nil || err != nil {
			t.Errorf("an unchanged bucket was read again: %v", err)
		}
	}
	told, before, err := s.fetch(content.TemplateSource{Prefix: "all/games/lobby", Template: content.TemplateRef{Group: "g", Name: "t"}}, "")
	if err != nil || fmt.Sprint(told) != "[g/t/conf/a=1 g/t/world.zip=a file of the tree]" {
		t.Errorf("%v, %v", told, err)
	}
	s.put("all/games/lobby/conf/a", "2")
	if told, _, err = s.fetch(content.TemplateSource{Prefix: "all/games", Group: "mine"}, before.Revision); err != nil || !strings.Contains(fmt.Sprint(told), "mine/lobby/conf/a=2") {
		t.Errorf("%v, %v", told, err)
	}
	s.put("all/games/duel/f", "beside its archive")
	if told, _, err := s.fetch(content.TemplateSource{Prefix: "all"}, ""); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "also has other objects") {
		t.Errorf("%v, %v", told, err)
	}
}

func TestAPrefixOfMoreThanOnePageIsReadWholly(t *testing.T) {
	s := newSite(t)
	const many = 1200
	for i := range many {
		s.put(fmt.Sprintf("games/lobby/%04d", i), "x")
	}
	told, _, err := s.fetch(content.TemplateSource{}, "")
	if err != nil || len(told) != many {
		t.Errorf("%d objects, %v", len(told), err)
	}
	// If the second page fails, the listing is not just shorter.
	s.answering(func(w http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		if q.Get("continuation-token") == "" && q.Get("marker") == "" {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if told, h, err := s.fetch(content.TemplateSource{}, ""); h != nil || !errs.Is(err, errs.Unavailable) {
		t.Errorf("%d objects, %v", len(told), err)
	}
}

func TestAServerThatCannotAnswerIsAskedAgainAndThenGivenUp(t *testing.T) {
	s := newSite(t)
	s.put("games/lobby/f", "1")
	var asked atomic.Int32
	s.answering(func(w http.ResponseWriter, _ *http.Request) bool {
		if asked.Add(1) > 1 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if told, _, err := s.fetch(content.TemplateSource{}, ""); err != nil || len(told) != 1 {
		t.Errorf("after one refusal: %v, %v", told, err)
	}
	asked.Store(0)
	s.answering(func(w http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	_, h, err := s.fetch(content.TemplateSource{}, "")
	if h != nil || !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "answers 503") || asked.Load() > 5 {
		t.Errorf("%v after %d tries", err, asked.Load())
	}
}

func TestWhatAServerRefusesIsTold(t *testing.T) {
	s := newSite(t)
	s.put("games/lobby/f", "1")
	refused := func(source content.TemplateSource, kind errs.Kind, want string) {
		t.Helper()
		if told, _, err := s.fetch(source, ""); !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), want) {
			t.Errorf("%v, %v (%s), want %s", told, err, errs.KindOf(err), want)
		}
	}
	refused(content.TemplateSource{Bucket: "another"}, errs.Invalid, "does not exist on the S3 server")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s.dialer.Idle = 300 * time.Millisecond
	refused(content.TemplateSource{URL: "http://" + silent.Addr().String()}, errs.Unavailable, "does not answer in time")
	s.dialer.Idle = 0
	s.answering(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	refused(content.TemplateSource{}, errs.Denied, "refuses the keys")
	s.answering(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/f") {
			w.WriteHeader(http.StatusPreconditionFailed)
			return true
		}
		return false
	})
	refused(content.TemplateSource{}, errs.Unavailable, "changed while it was read")
}
