package templatesvc_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// forgetful is a transport to replicas that performs the first request of a call, but loses
// its answer.
type forgetful struct {
	*client.Client
	// armed loses the next answer; lost counts the lost ones.
	armed atomic.Bool
	lost  atomic.Int32
}

func newForgetful(t *testing.T, services ...*templatesvc.Service) *forgetful {
	t.Helper()
	f := &forgetful{}
	var urls []string
	for _, s := range services {
		at := s.URL()
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			onward, err := http.NewRequestWithContext(r.Context(), r.Method, at+r.URL.RequestURI(), bytes.NewReader(body))
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			onward.Header = r.Header.Clone()
			resp, err := http.DefaultClient.Do(onward)
			if err != nil || f.armed.CompareAndSwap(true, false) {
				if err == nil {
					f.lost.Add(1)
					_ = resp.Body.Close()
				}
				panic(http.ErrAbortHandler)
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		}))
		t.Cleanup(front.Close)
		urls = append(urls, front.URL)
	}
	f.Client = client.New(client.Config{Secret: secret, Resolve: func() []string { return urls }})
	return f
}

func TestAChangeWhoseAnswerWasLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, _ := w.start("a")
	b, _ := w.start("b")
	direct, f := desk{w, clientOf(a, b)}, newForgetful(t, a, b)
	first := direct.put("a", "1")
	direct.put("a", "2")
	third := direct.put("a", "3")
	made := content.TemplateRef{Group: "g", Name: "made"}
	staged := by("")
	staged.Draft = true
	for _, c := range []struct {
		what  string
		do    func() (content.TemplateHead, error)
		moves int // total moves of the template's head
	}{
		{"create", func() (content.TemplateHead, error) {
			return f.CreateTemplate(t.Context(), made, client.Description{}, bob)
		}, 3},
		{"rename", func() (content.TemplateHead, error) {
			e, err := f.Edit(t.Context(), by(""), client.Op{Op: "rename", Path: "a", To: "b"})
			return e.Head, err
		}, 4},
		{"rollback", func() (content.TemplateHead, error) {
			return f.Rollback(t.Context(), ref, client.RollbackRequest{}, bob)
		}, 5},
		{"stage", func() (content.TemplateHead, error) {
			e, err := f.Edit(t.Context(), staged, client.Op{Op: "rename", Path: "a", To: "c"})
			return e.Head, err
		}, 5},
		{"publish the draft", func() (content.TemplateHead, error) {
			e, err := f.PublishDraft(t.Context(), by(""))
			return e.Head, err
		}, 6},
		{"delete a version", func() (content.TemplateHead, error) {
			return content.TemplateHead{}, f.DeleteVersion(t.Context(), ref, first, bob)
		}, 6},
		{"delete", func() (content.TemplateHead, error) {
			return content.TemplateHead{}, f.DeleteTemplate(t.Context(), ref, bob)
		}, 7},
	} {
		f.armed.Store(true)
		before := f.lost.Load()
		h, err := c.do()
		if err != nil || f.lost.Load() != before+1 {
			t.Fatalf("%s: %v, %d answers were lost", c.what, err, f.lost.Load()-before)
		}
		if c.what == "rollback" && h.Digest != third {
			t.Errorf("one rollback leads to %s, want %s", h.Digest, third)
		}
		moves, _, err := store.List(t.Context(), w.c, keys.TemplateMoves(ref))
		if err != nil || len(moves) != c.moves {
			t.Errorf("%s: %d moves, %v, want %d", c.what, len(moves), err, c.moves)
		}
	}
	if _, exists := w.head(); exists {
		t.Error("the template was not deleted")
	}
	if err := f.DeleteTemplate(t.Context(), ref, bob); !errs.Is(err, errs.NotFound) {
		t.Errorf("deleted by another call: %v", err)
	}
}
