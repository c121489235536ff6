package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// wireTo is a RoundTripper function.
type wireTo func(*http.Request) (*http.Response, error)

func (w wireTo) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// stopped reads the request and never responds.
func stopped(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// answered returns a response.
func answered(body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}
}

// slow responds after a delay, but answers probes at once.
func slow(takes time.Duration) wireTo {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/livez" {
			return answered(strings.NewReader("ok")), nil
		}
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		select {
		case <-time.After(takes):
			return answered(strings.NewReader("{}")), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// templatesOver returns a client for templatesvc with one replica behind way.
func templatesOver(t *testing.T, way wireTo) *Templates {
	t.Helper()
	made := func(patience time.Duration) *client.Client {
		return client.New(client.Config{
			Resolve: func() []string { return []string{"http://templates"} }, Log: slog.New(slog.DiscardHandler),
			HTTP: attend(&http.Client{Transport: way}, patience),
		})
	}
	return &Templates{client: made(askPatience), bulk: made(uploadPatience), breakers: newHealth(t).of[kindTemplates]}
}

// pausing is a body with a pause in the middle.
type pausing struct{ steps int }

func (p *pausing) Read(b []byte) (int, error) {
	if p.steps++; p.steps > 2 {
		return 0, io.EOF
	}
	<-time.After(time.Minute)
	return copy(b, "part"), nil
}

var change = client.Change{Ref: content.TemplateRef{Group: "g", Name: "t"}, Path: "q"}

func TestAServiceThatHasStoppedIsGivenUpAndThenNotAsked(t *testing.T) {
	calls := map[string]func(context.Context, *Templates) error{
		"a write": func(ctx context.Context, tm *Templates) error {
			_, err := tm.PutFile(ctx, change, false, strings.NewReader("x"))
			return err
		},
		"a question": func(ctx context.Context, tm *Templates) error {
			_, err := tm.Files(ctx, "d", "", false)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tm := templatesOver(t, stopped)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				for n := range tripAfter + 1 {
					began := time.Now()
					err := call(ctx, tm)
					if !errs.Is(err, errs.Unavailable) || errs.MessageOf(err) != "the template service does not answer now: retry in a moment" {
						t.Fatalf("err = %v", err)
					}
					if took := time.Since(began); n < tripAfter && took > 2*silence || n == tripAfter && took != 0 {
						t.Errorf("call %d took %v", n, took)
					}
				}
			})
		})
	}
}

func TestAServiceThatAnswersOthersMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := templatesOver(t, slow(5*time.Minute))
		if _, err := tm.Import(t.Context(), change, "", strings.NewReader("x")); err != nil {
			t.Errorf("an import: %v", err)
		}
		if _, err := tm.Files(t.Context(), "d", "", false); !errs.Is(err, errs.Unavailable) {
			t.Errorf("a question that hangs: %v", err)
		}
		tm = templatesOver(t, slow(time.Hour))
		if _, err := tm.Import(t.Context(), change, "", strings.NewReader("x")); !errs.Is(err, errs.Unavailable) {
			t.Errorf("an import that hangs: %v", err)
		}
	})
}

func TestWhoIsSlowToSendIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := templatesOver(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/livez" {
				return nil, errors.New("it answers nobody while it is sent something")
			}
			_, err := io.Copy(io.Discard, r.Body)
			return answered(strings.NewReader("{}")), err
		})
		if _, err := tm.PutFile(t.Context(), change, false, &pausing{}); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAnswerThatStopsInTheMiddleIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := templatesOver(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/livez" {
				return stopped(r)
			}
			in, out := io.Pipe()
			go func() {
				_, _ = out.Write([]byte("half"))
				<-r.Context().Done()
				_ = out.CloseWithError(r.Context().Err())
			}()
			return answered(in), nil
		})
		f, err := tm.File(t.Context(), "d", "a")
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // nobody reads, so the wait does not count against the replica
		if _, err := io.ReadFull(f.Body, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Body.Read(make([]byte, 4)); !errors.Is(err, errSilent) {
			t.Errorf("err = %v", err)
		}
		_ = f.Body.Close()
	})
}
