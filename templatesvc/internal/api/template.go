package api

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// templates returns the endpoints of templates, their versions and history.
func (s *Server) templates() map[string]endpoint {
	const one = " /v1/templates/{group}/{name}"
	return map[string]endpoint{
		"POST" + one: func(r *http.Request) (result, error) {
			d, ref, by, err := readDescription(r)
			if err != nil {
				return nil, err
			}
			return writeHead(s.Versions.Create(r.Context(), ref, d, by))
		},
		"PATCH" + one: func(r *http.Request) (result, error) {
			d, ref, by, err := readDescription(r)
			if err != nil {
				return nil, err
			}
			return writeHead(s.Versions.Describe(r.Context(), ref, d, by))
		},
		"DELETE" + one: func(r *http.Request) (result, error) {
			ref, by, err := readTemplate(r)
			if err != nil {
				return nil, err
			}
			return writeDone(s.Versions.Delete(r.Context(), ref, by))
		},
		"DELETE" + one + "/versions/{digest}": func(r *http.Request) (result, error) {
			ref, by, err := readTemplate(r)
			if err != nil {
				return nil, err
			}
			return writeDone(s.Versions.DeleteVersion(r.Context(), ref, r.PathValue("digest"), by))
		},
		"POST" + one + "/rollback": func(r *http.Request) (result, error) {
			var body client.RollbackRequest
			if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
				return nil, err
			}
			ref, by, err := readTemplate(r)
			if err != nil {
				return nil, err
			}
			return writeHead(s.Versions.Rollback(r.Context(), ref, body.Digest, by))
		},
		"GET" + one + "/history": func(r *http.Request) (result, error) {
			ref, _, err := readTemplate(r)
			if err != nil {
				return nil, err
			}
			return writeJSON(s.Versions.History(r.Context(), ref))
		},
		"GET /v1/diff": func(r *http.Request) (result, error) {
			q := r.URL.Query()
			changes, more, err := s.Versions.Diff(r.Context(), q.Get("from"), q.Get("to"), q.Get("path"))
			return writeJSON(client.Difference{Changes: changes, More: more}, err)
		},
	}
}

// readTemplate reads the template and the author of a request. It returns Invalid when the
// template's name is not valid, and the errors of askedOf.
func readTemplate(r *http.Request) (content.TemplateRef, versions.Asked, error) {
	ref := refOf(r)
	by, err := askedOf(r)
	if err == nil && !ref.Valid() {
		err = errs.New(errs.Invalid, "%q is not a template name: letters, digits, _ . and -, at most 64 each", ref)
	}
	return ref, by, err
}

// readDescription is like readTemplate, and also reads the description in the body.
func readDescription(r *http.Request) (versions.Description, content.TemplateRef, versions.Asked, error) {
	var body client.Description
	ref, by, err := readTemplate(r)
	if err == nil {
		err = wire.DecodeJSON(r.Body, 0, &body)
	}
	return versions.Description{Text: body.Description, Platform: body.Platform}, ref, by, err
}

func refOf(r *http.Request) content.TemplateRef {
	return content.TemplateRef{Group: r.PathValue("group"), Name: r.PathValue("name")}
}

// operationForm is the pattern of an operation ID.
var operationForm = regexp.MustCompile(`^[0-9A-Za-z]{1,64}$`)

// askedOf reads the author, the operation ID and the revision of a change. It returns
// Malformed when they are not valid.
func askedOf(r *http.Request) (a versions.Asked, err error) {
	a = versions.Asked{
		Author: header(r, client.HeaderActor), Owner: r.Header.Get(client.HeaderOwner), Operation: r.Header.Get(client.HeaderOperation),
		Request: r.Header.Get(client.HeaderRequest), Shown: content.Visibility(r.Header.Get(client.HeaderShown)),
	}
	for _, name := range []string{client.HeaderOwner, client.HeaderOperation, client.HeaderRequest} {
		if text := r.Header.Get(name); text != "" && !operationForm.MatchString(text) {
			return a, errs.New(errs.Malformed, "%s must be 1 to 64 letters and digits", name)
		}
	}
	if rev := r.URL.Query().Get("revision"); rev != "" {
		if a.Revision, err = strconv.ParseInt(rev, 10, 64); err != nil || a.Revision <= 0 {
			return a, &errs.Error{Kind: errs.Malformed, Field: "revision", Message: "must be a revision"}
		}
	}
	return a, nil
}

// header returns the unescaped value of a header.
func header(r *http.Request, name string) string {
	text, err := url.QueryUnescape(r.Header.Get(name))
	if err != nil {
		return ""
	}
	return text
}

// writeHead returns the result of a call that returned a head.
func writeHead(head content.TemplateHead, err error) (result, error) {
	return writeOutcome(versions.Outcome{Head: head}, err)
}

// writeOutcome returns the result of a change.
func writeOutcome(o versions.Outcome, err error) (result, error) { return writeJSON(edited(o), err) }

func edited(o versions.Outcome) client.Edited {
	return client.Edited{Head: o.Head, Revision: o.Head.ModRev, Changes: o.Changes, More: o.More}
}
