package nodeagent_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestExportOfRunningInstance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`echo "added=yes" >> server.properties; echo "mine" > own.txt; echo '!' >> deep/changed; printf 'motd: hi\nport: "25000"\nby: patch\n' > settings.yml; printf 'a\0b' > data.bin; echo "$ORRERY_TOKEN" > token; touch done; read line`)
	plan.Stop.Command = "stop"
	plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{
		"server.properties": "port=%PORT%\n", "deep/plain": "%PORT%", "deep/changed": "%PORT%", "settings.yml": "port: %PORT%\nmotd: hello\n", "same.yml": "a: 1\n",
	})}
	plan.FileModifications = []string{"server.properties", "settings.yml"}
	plan.Patches = []configfile.ConfigPatch{
		{File: "settings.yml", Op: configfile.PatchSet, Path: "by", Value: json.RawMessage(`"patch"`)},
		{File: "same.yml", Op: configfile.PatchSet, Path: "a", Value: json.RawMessage("2")},
	}
	plan.Variables = map[string]string{"PORT": "25000"}
	s.online("aaaaaa", plan)
	c := s.api()
	want := map[string]string{"server.properties": "port=%PORT%\nadded=yes\n", "own.txt": "mine\n", "deep/changed": "%PORT%!\n", "settings.yml": "motd: hi\nport: %PORT%\n", "done": ""}
	await.That(t, "the files", func() string {
		files, report, err := exported(c.Export(t.Context(), "aaaaaa", ""))
		if err != nil {
			return err.Error()
		}
		if diff := cmp.Diff(want, files); diff != "" {
			return diff
		}
		skipped := []client.SkippedFile{{Path: "data.bin", Reason: "not text"}, {Path: "token", Reason: "may contain a secret"}}
		return cmp.Diff(client.ExportReport{Files: len(want), Unchanged: 2, Skipped: skipped}, report)
	})
	if files, _, err := exported(c.Export(t.Context(), "aaaaaa", "deep")); err != nil || !cmp.Equal(files, map[string]string{"deep/changed": "%PORT%!\n"}) {
		t.Errorf("below a prefix: %v, %v", files, err)
	}
	for prefix, kind := range map[string]errs.Kind{"../x": errs.Invalid, "none": errs.NotFound} {
		if _, err := c.Export(t.Context(), "aaaaaa", prefix); !errs.Is(err, kind) {
			t.Errorf("prefix %s: %v", prefix, err)
		}
	}
	if _, err := c.Export(t.Context(), "zzzzzz", ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("an instance that is not here: %v", err)
	}
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	if _, err := c.Export(t.Context(), "aaaaaa", ""); !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) {
		t.Errorf("one that has ended: %v", err)
	}
}

func TestExportHidesRestrictedVariables(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`printf 'hook=%s\nmode=%s\nregion=%s\n' "$HOOK" "$MODE" "$REGION" >own.txt; echo 'added=yes' >>web.properties; mkdir north-two; touch north-two/done; read line`)
	plan.Stop.Command = "stop"
	plan.Layers = []fleet.PlanLayer{s.library.add("lobby", map[string]string{"web.properties": "hook=%HOOK%\nmode=%MODE%\n"})}
	plan.FileModifications = []string{"*.properties"}
	plan.Variables = map[string]string{"HOOK": "https://hooks.example/abc", "MODE": "true", "REGION": "north-one", "ZONE": "north-two"}
	plan.Env = map[string]string{"HOOK": "%HOOK%", "MODE": "%MODE%", "REGION": "%REGION%"}
	plan.Hidden = map[string]content.Visibility{"HOOK": content.VisibleToAdmins, "MODE": content.VisibleToOperators, "ZONE": content.VisibleToOperators}
	s.online("aaaaaa", plan)
	want := map[string]string{
		"own.txt": "hook=%HOOK%\nmode=true\nregion=north-one\n", "web.properties": "hook=%HOOK%\nmode=%MODE%\nadded=yes\n", "north-two/done": "",
	}
	await.That(t, "the files", func() string {
		files, report, err := exported(s.api().Export(t.Context(), "aaaaaa", ""))
		return await.Unless(err == nil && cmp.Equal(want, files), "%s %+v, %v", cmp.Diff(want, files), report, err)
	})
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
}

// exported reads an export into its files and its report.
func exported(body io.ReadCloser, err error) (files map[string]string, report client.ExportReport, _ error) {
	if err != nil {
		return nil, report, err
	}
	defer body.Close()
	files = map[string]string{}
	for r := tar.NewReader(body); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, report, err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, report, err
		}
		files[h.Name] = string(b)
	}
	err = json.Unmarshal([]byte(files[client.ExportReportName]), &report)
	delete(files, client.ExportReportName)
	return files, report, err
}
