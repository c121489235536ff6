package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/nodeagent/internal/content/configexport"
)

// exportTimeout bounds the duration of an export.
const exportTimeout = 2 * time.Minute

// export serves an instance's configuration as an archive.
func export(all Instances) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), exportTimeout)
		defer cancel()
		out := &trackedWriter{to: w}
		err := writeExport(ctx, all, r, out)
		switch {
		case err == nil:
		case !out.yet:
			encodeError(w, err)
		default: // a part of the answer was sent: abort it, so that its report is missing
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
	return configexport.Write(ctx, w, request.Request)
}

// trackedWriter records whether anything was written.
type trackedWriter struct {
	to  http.ResponseWriter
	yet bool
}

func (b *trackedWriter) Write(p []byte) (int, error) {
	if !b.yet {
		b.to.Header().Set("Content-Type", "application/x-tar")
		b.yet = true
	}
	return b.to.Write(p)
}
