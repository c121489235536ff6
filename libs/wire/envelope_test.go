package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

var dialects = map[string]wire.Dialect{"V1": wire.V1, "Universe": wire.Universe, "Internal": wire.Internal}

func encode(d wire.Dialect, requestID string, err error) *http.Response {
	rec := httptest.NewRecorder()
	wire.Encode(rec, d, requestID, err)
	return rec.Result()
}

func TestEveryKindHasAnErrorStatusAndACode(t *testing.T) {
	for _, k := range errs.Kinds {
		if s := wire.Status(k); s < 400 || s > 599 {
			t.Errorf("%v has status %d", k, s)
		}
		if wire.Code(k) == "" {
			t.Errorf("%v has no code", k)
		}
		if k != errs.Internal && wire.Status(k) == wire.Status(errs.Internal) {
			t.Errorf("%v falls back to the row of Internal", k)
		}
	}
}

func TestAKindSurvivesAHopBetweenServices(t *testing.T) {
	for _, k := range errs.Kinds {
		in := errs.Wrap("rest.Create", &errs.Error{Kind: k, Field: "ports[0]", Message: "is taken"})
		resp := encode(wire.Internal, "01J", in)
		if resp.StatusCode != wire.Status(k) {
			t.Errorf("%v was sent with status %d", k, resp.StatusCode)
		}
		out := wire.DecodeError(resp)
		if errs.KindOf(out) != k {
			t.Errorf("%v came back as %v", k, errs.KindOf(out))
		}
		if k == errs.Internal {
			continue
		}
		if errs.FieldOf(out) != "ports[0]" || errs.MessageOf(out) != "is taken" {
			t.Errorf("%v came back with field %q, message %q", k, errs.FieldOf(out), errs.MessageOf(out))
		}
	}
}

func TestEncode(t *testing.T) {
	cases := []struct {
		name    string
		dialect wire.Dialect
		err     error
		status  int
		body    string
	}{
		{
			"v1 carries code, message and status", wire.V1, errs.New(errs.NotFound, "there is no group lobby"),
			404, `{"error":{"code":"NOT_FOUND","message":"there is no group lobby","status":404}}`,
		},
		{
			"universe carries a text", wire.Universe, errs.New(errs.NotFound, "there is no group lobby"),
			404, `{"error":"there is no group lobby"}`,
		},
		{
			"the field is put before the message", wire.V1, errs.Field("portRangeStart", "must be between 1 and 65535"),
			422, `{"error":{"code":"VALIDATION_ERROR","message":"portRangeStart must be between 1 and 65535","status":422}}`,
		},
		{
			"a message that names its field is not prefixed again", wire.Universe, errs.Field("name", "name is empty"),
			422, `{"error":"name is empty"}`,
		},
		{
			"a place that is to be filled in is readable", wire.Universe, errs.New(errs.Denied, "send Bearer <token> & try again"),
			403, `{"error":"send Bearer <token> & try again"}`,
		},
		{
			"a longer word is not the field's name", wire.Universe, errs.Field("port", "ports overlap"),
			422, `{"error":"port ports overlap"}`,
		},
		{
			"the field stays apart between services", wire.Internal, errs.Field("name", "is empty"),
			422, `{"error":{"code":"VALIDATION_ERROR","message":"is empty","status":422,"field":"name","kind":"invalid"}}`,
		},
		{
			"an internal error shows only the request id", wire.V1, errs.WrapAs(errs.Internal, "store.Put", errs.New(errs.NotFound, "secret")),
			500, `{"error":{"code":"INTERNAL_ERROR","message":"internal error: report it with request id 01J","status":500}}`,
		},
		{
			"a foreign error is internal", wire.Universe, errors.New("dial tcp 10.0.0.1: refused"),
			500, `{"error":"internal error: report it with request id 01J"}`,
		},
		{
			"a cause never leaves", wire.V1, errs.WrapAs(errs.Unavailable, "store.Get", errors.New("dial tcp 10.0.0.1: refused")),
			503, `{"error":{"code":"UNAVAILABLE","message":"a part of the system does not answer now: retry","status":503}}`,
		},
		{
			"v1 answers 409 to an exhausted limit", wire.V1, errs.New(errs.Exhausted, "no node is large enough"),
			409, `{"error":{"code":"EXHAUSTED","message":"no node is large enough","status":409}}`,
		},
		{
			"universe answers 503 to an exhausted limit", wire.Universe, errs.New(errs.Exhausted, "no node is large enough"),
			503, `{"error":"no node is large enough"}`,
		},
		{
			"a cancelled caller is not a failure of ours", wire.V1, fmt.Errorf("x: %w", context.Canceled),
			499, `{"error":{"code":"CANCELED","message":"the request was given up by its caller","status":499}}`,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp := encode(c.dialect, "01J", c.err)
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || strings.TrimSpace(string(body)) != c.body {
				t.Errorf("got %d %s\nwant %d %s", resp.StatusCode, body, c.status, c.body)
			}
			if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
				t.Errorf("Content-Type = %q", got)
			}
			if retry := resp.Header.Get("Retry-After"); (retry != "") != (c.status == 503) {
				t.Errorf("status %d with Retry-After %q", c.status, retry)
			}
		})
	}
}

func TestARateLimitIsWrittenByHand(t *testing.T) {
	rec := httptest.NewRecorder()
	wire.Write(rec, wire.V1, wire.Reply{Status: 429, Code: "RATE_LIMITED", Message: "slow down", RetryAfter: 1500e6})
	if rec.Code != 429 || rec.Header().Get("Retry-After") != "2" {
		t.Errorf("got %d, Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
	}
	if !errs.Is(wire.DecodeError(rec.Result()), errs.Exhausted) {
		t.Error("a 429 does not come back as Exhausted")
	}
}

func TestDecodeErrorReadsEveryDialect(t *testing.T) {
	for name, d := range dialects {
		err := wire.DecodeError(encode(d, "", errs.New(errs.NotFound, "there is no group lobby")))
		if !errs.Is(err, errs.NotFound) || errs.MessageOf(err) != "there is no group lobby" {
			t.Errorf("%s: %v %q", name, errs.KindOf(err), errs.MessageOf(err))
		}
	}
}

func TestDecodeErrorOfUnknownFormat(t *testing.T) {
	cases := []struct {
		name    string
		status  int
		body    string
		kind    errs.Kind
		message string
	}{
		{"a proxy's page is not quoted", 502, "<html>bad</html>", errs.Unavailable, "the server answered 502 Bad Gateway"},
		{"a plain text is quoted", 404, "404 page\nnot found", errs.NotFound, "the server answered 404 Not Found: 404 page not found"},
		{"an unknown 4xx is the caller's mistake", 418, "", errs.Invalid, "the server answered 418 I'm a teapot"},
		{"an unknown 5xx is internal", 507, "", errs.Internal, "the server answered 507 Insufficient Storage"},
		{"a moved revision is a conflict", 412, "", errs.Conflict, "the server answered 412 Precondition Failed"},
		{"v1's code decides within a status", 409, `{"error":{"code":"EXHAUSTED","message":"full","status":409}}`, errs.Exhausted, "full"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp := &http.Response{
				StatusCode: c.status, Body: io.NopCloser(strings.NewReader(c.body)),
				Request: &http.Request{Method: "GET", URL: &url.URL{Path: "/x", RawQuery: "ticket=secret"}},
			}
			err := wire.DecodeError(resp)
			if errs.KindOf(err) != c.kind || errs.MessageOf(err) != c.message {
				t.Errorf("got %v %q, want %v %q", errs.KindOf(err), errs.MessageOf(err), c.kind, c.message)
			}
			if strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(), "GET /x: ") {
				t.Errorf("Error() = %q", err)
			}
		})
	}
}

func TestASuccessIsNoError(t *testing.T) {
	if err := wire.DecodeError(&http.Response{StatusCode: 204}); err != nil {
		t.Error(err)
	}
}

func TestRepeatedRequestTextIsShortened(t *testing.T) {
	for name, d := range dialects {
		for text, most := range map[string]int{
			strings.Repeat("x", 100_000): 1000, strings.Repeat("é", 100_000): 1000, strings.Repeat("\xff", 100_000): 1000,
			strings.Repeat("many words ", 10_000): 10_000,
		} {
			resp := encode(d, "01J", errs.Field("name", "is %s, which is not a name", text))
			body, err := io.ReadAll(resp.Body)
			if err != nil || len(body) > most || !utf8.Valid(body) || !strings.Contains(string(body), "…") {
				t.Errorf("%s: %d bytes, %v: %.300s", name, len(body), err, body)
			}
			if most == 1000 && !strings.Contains(string(body), "…, which is not a name") && !strings.Contains(string(body), "… which is not a name") {
				t.Errorf("%s: what is wrong is cut too: %s", name, body)
			}
		}
	}
	text := strings.TrimSpace(strings.Repeat("a sentence that is long, ", 100))
	out := wire.DecodeError(encode(wire.Internal, "", errs.New(errs.Invalid, "%s", text)))
	if errs.MessageOf(out) != text {
		t.Errorf("a message of words is cut: %v", out)
	}
}
