package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
)

// Samples returns the samples of the node and its instances.
type Samples interface {
	Node(now time.Time, w series.Window) series.Figures
	// Instance returns NotFound if there are no samples.
	Instance(id fleet.InstanceID, now time.Time, w series.Window) (series.Figures, error)
}

type seriesRequest struct {
	id     fleet.InstanceID
	window series.Window
}

func readNodeSeries(samples Samples) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		return samples.Node(time.Now(), request.(seriesRequest).window), nil
	}
}

func readSeries(samples Samples) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		r := request.(seriesRequest)
		return samples.Instance(r.id, time.Now(), r.window)
	}
}

func decodeSeries(_ context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	window, err := series.ParseWindow(q.Get("window"), q.Get("buckets"))
	return seriesRequest{instanceID(r), window}, err
}
