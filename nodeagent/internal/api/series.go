package api

import (
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
)

// Samples returns the samples of the node and its instances.
type Samples interface {
	Node(now time.Time, w series.Window) series.Figures
	// Instance returns NotFound if there are no samples.
	Instance(id fleet.InstanceID, now time.Time, w series.Window) (series.Figures, error)
}

func readNodeSeries(samples Samples) http.Handler {
	return serveWindow(func(_ *http.Request, w series.Window) (any, error) { return samples.Node(time.Now(), w), nil })
}

func readSeries(samples Samples) http.Handler {
	return serveWindow(func(r *http.Request, w series.Window) (any, error) {
		return samples.Instance(instanceID(r), time.Now(), w)
	})
}

func serveWindow(read func(*http.Request, series.Window) (any, error)) http.Handler {
	return Serve(func(r *http.Request) (any, error) {
		q := r.URL.Query()
		window, err := series.ParseWindow(q.Get("window"), q.Get("buckets"))
		if err != nil {
			return nil, err
		}
		return read(r, window)
	})
}
