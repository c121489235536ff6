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

// ExportReportName is the last entry of an export, an ExportReport as JSON: an archive
// without it broke off. No template may hold such a name.
const ExportReportName = ".orrery/report.json"

// ExportReport says what an export holds and what not.
type ExportReport struct {
	// Files is how many files the export holds.
	Files int `json:"files"`
	// Unchanged is how many files are left out because they are what the templates made.
	Unchanged int `json:"unchanged,omitempty"`
	// Skipped are those that were left out, 500 at most; MoreSkipped is how many more there are.
	Skipped     []SkippedFile `json:"skipped"`
	MoreSkipped int           `json:"moreSkipped,omitempty"`
	// Truncated says why not all was looked at; empty when it was.
	Truncated string `json:"truncated,omitempty"`
}

// SkippedFile is a file or directory that is not in an export.
type SkippedFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // for people, such as "not text" or "a world"
}

// Export opens a tar archive of an instance's configuration: those of its text
// files below a prefix, or all for an empty one, that are not as its templates made
// them, placeholders being placeholders again. Its last entry
// is the report. The caller closes it. Conflict when the instance does not run, NotFound
// when it or the prefix is not there, Invalid for a prefix that leads out.
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
