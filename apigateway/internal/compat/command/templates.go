package command

import (
	"context"
	"strconv"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func (*Interpreter) templateCommands() []command {
	update := []auth.Permission{auth.TemplatesUpdate}
	return []command{
		{name: "template list", about: "list the templates", needs: []auth.Permission{auth.TemplatesView}, run: listTemplates},
		{name: "template sync", args: []string{"<pattern>", "[node]"}, about: "copy templates (*, group/* or group/name) to a node, or to all nodes", needs: update, changes: true, run: syncTemplates},
		{name: "s3 upload", args: []string{"<pattern>"}, about: "not needed; explains why", needs: update, run: not("uploads to a bucket by hand; where templatesvc keeps its content in a bucket (blobs.s3), everything that is published is there already")},
		{name: "s3 download", args: []string{"<source>"}, about: "read a source of templates now", needs: update, changes: true, run: download},
		{name: "extension list", about: "list the runtimes of the nodes", needs: []auth.Permission{auth.ModulesView}, run: listExtensions},
		{name: "extension reload", about: "not implemented yet", needs: []auth.Permission{auth.ModulesManage}, run: not("reloading extensions: restart the program that has them; instances keep running")},
	}
}

func listTemplates(_ context.Context, c *call) error {
	rows := [][]string{{"TEMPLATE", "FILES", "BYTES", "VERSION", "FROM"}}
	for name, h := range c.snapshot.TemplateHeads.All() {
		if h.Hidden() {
			continue
		}
		rows = append(rows, []string{name, strconv.Itoa(h.Files), strconv.FormatInt(h.SizeBytes, 10), h.Digest[:min(len(h.Digest), 12)], dash(h.Origin)})
	}
	if len(rows) == 1 {
		return c.say("there are no templates")
	}
	return c.table(rows)
}

func syncTemplates(ctx context.Context, c *call) error {
	q := templateops.SyncRequest{Pattern: c.arg(0)}
	if node := c.arg(1); node != "" {
		q.Nodes = []fleet.NodeID{fleet.NodeID(node)}
	}
	report, err := c.cfg.Operations.SyncTemplates(ctx, c.By, q)
	if err != nil {
		if errs.Is(err, errs.Invalid) && errs.FieldOf(err) != "pattern" {
			return errs.New(errs.NotFound, "there is no node %s: cluster nodes shows them", clip(c.arg(1)))
		}
		return err
	}
	if err := c.say("%s", report.Message); err != nil {
		return err
	}
	for _, n := range report.Nodes {
		if err := c.say("%s: %s, %d bytes%s", n.Node, n.Status, n.Bytes, because(n.Error)); err != nil {
			return err
		}
		for _, t := range n.Templates {
			if t.Status == templateops.SyncOK {
				continue
			}
			if err := c.say("  %s: %s%s", t.Template, t.Status, because(t.Error)); err != nil {
				return err
			}
		}
	}
	if report.Status != templateops.SyncOK {
		return errs.New(errs.Unavailable, "not every node has them")
	}
	return nil
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func download(ctx context.Context, c *call) error {
	err := c.cfg.Sources.Sync(ctx, c.By, c.arg(0), "")
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "there is no source of templates %s: orrery get sources lists them", clip(c.arg(0)))
	}
	if err != nil {
		return err
	}
	return c.say("source %s is being read", c.arg(0))
}

func listExtensions(_ context.Context, c *call) error {
	rows := [][]string{{"NODE", "RUNTIME", "OFFERED", ""}}
	for id, n := range c.snapshot.Nodes.All() {
		for _, r := range n.Runtimes {
			offered := "yes"
			if !r.Offered {
				offered = "no"
			}
			rows = append(rows, []string{string(id), string(r.Name), offered, r.Why})
		}
	}
	if len(rows) == 1 {
		return c.say("no node has reported its runtimes")
	}
	return c.table(rows)
}
