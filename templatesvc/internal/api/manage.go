package api

import (
	"context"
	"net/http"

	kithttp "github.com/go-kit/kit/transport/http"

	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/api/endpoint"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// mountManagement adds the routes of templates, their versions and history.
func mountManagement(mux *http.ServeMux, m endpoint.Management, opts []kithttp.ServerOption) {
	const one = " /v1/templates/{group}/{name}"
	mux.Handle("POST"+one, kithttp.NewServer(m.Create, readManage, writeJSON, opts...))
	mux.Handle("PATCH"+one, kithttp.NewServer(m.Describe, readManage, writeJSON, opts...))
	mux.Handle("DELETE"+one, kithttp.NewServer(m.Delete, readManage, writeJSON, opts...))
	mux.Handle("DELETE"+one+"/versions/{digest}", kithttp.NewServer(m.DeleteVersion, readManage, writeJSON, opts...))
	mux.Handle("GET"+one+"/history", kithttp.NewServer(m.History, readManage, writeJSON, opts...))
	mux.Handle("GET /v1/diff", kithttp.NewServer(m.Diff, readDiff, writeJSON, opts...))
}

func readManage(_ context.Context, r *http.Request) (any, error) {
	asked, err := askedOf(r)
	if err != nil {
		return nil, err
	}
	out := endpoint.ManageRequest{Ref: refOf(r), Digest: r.PathValue("digest"), Asked: asked}
	if r.Method == http.MethodPost || r.Method == http.MethodPatch {
		var body client.Description
		if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
			return nil, err
		}
		out.Description = versions.Description{Text: body.Description, Platform: body.Platform}
	}
	return out, nil
}

func readDiff(_ context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	return endpoint.DiffRequest{From: q.Get("from"), To: q.Get("to"), Path: q.Get("path")}, nil
}
