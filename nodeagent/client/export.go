package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// ExportReportName is the last entry of an export, an ExportReport as JSON. An archive without
// it is incomplete. No template may contain this name.
const ExportReportName = ".orrery/report.json"

// ExportReport describes the content of an export.
type ExportReport struct {
	// Files is the number of exported files.
	Files int `json:"files"`
	// Unchanged is the number of files omitted because they equal those of the templates.
	Unchanged int `json:"unchanged,omitempty"`
	// Skipped are the skipped files, at most 500. MoreSkipped is the number of the others.
	Skipped     []SkippedFile `json:"skipped"`
	MoreSkipped int           `json:"moreSkipped,omitempty"`
	// Truncated says why some files were not examined; empty if all were.
	Truncated string `json:"truncated,omitempty"`
}

// SkippedFile is a file or directory that is not in an export.
type SkippedFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // for people, such as "not text" or "a world"
}

// Export opens a tar archive of an instance's configuration: its text files below a prefix
// (empty for all) that differ from its templates, with placeholders instead of their values.
// The last entry is the report. The caller closes it. Conflict if the instance does not run,
// NotFound if the instance or the prefix does not exist, Invalid if the prefix leads out of the
// directory.
func (c *Client) Export(ctx context.Context, id fleet.InstanceID, prefix string) (io.ReadCloser, error) {
	resp, err := wire.Send(ctx, c.http, wire.Request{
		Method: http.MethodGet, Token: c.secret,
		URL: c.base + "/v1/instances/" + url.PathEscape(string(id)) + "/export?" + url.Values{"prefix": {prefix}}.Encode(),
	})
	if err != nil {
		return nil, errs.Wrap("nodeagent.Export", err)
	}
	return resp.Body, nil
}
