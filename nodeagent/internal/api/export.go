package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/nodeagent/internal/save"
)

// exportBound is how long an export may take.
const exportBound = 2 * time.Minute

// export serves an instance's configuration as an archive.
func export(all Instances) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), exportBound)
		defer cancel()
		out := &begun{to: w}
		err := writeExport(ctx, all, r, out)
		switch {
		case err == nil:
		case !out.yet:
			encodeError(ctx, err, w)
		default: // too late for words: whoever reads misses the report
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now())
			panic(http.ErrAbortHandler)
		}
	})
}

func writeExport(ctx context.Context, all Instances, r *http.Request, w io.Writer) error {
	i, err := all.Instance(instanceID(r))
	if err != nil {
		return err
	}
	request, err := i.Export(r.Context())
	if err != nil {
		return err
	}
	defer request.Close()
	request.Prefix = r.URL.Query().Get("prefix")
	return save.Write(ctx, w, request.Request)
}

// begun knows whether anything was written.
type begun struct {
	to  http.ResponseWriter
	yet bool
}

func (b *begun) Write(p []byte) (int, error) {
	if !b.yet {
		b.to.Header().Set("Content-Type", "application/x-tar")
		b.yet = true
	}
	return b.to.Write(p)
}
