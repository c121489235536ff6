package content_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/content"
)

const (
	begunBackup     = `{"id":"b1","state":"RUNNING"}`
	begunRestore    = `{"id":"b1","state":"RESTORING","restoredAt":"2026-11-29T12:00:00Z"}`
	unreachableNode = "503 the agent of node node-1 does not answer"
)

func TestWaitForABackup(t *testing.T) {
	create, restore := "backup create survival-1 --wait", "backup restore survival-1 b1 --yes --wait"
	for _, c := range []struct {
		name    string
		command string
		begun   string
		// reads are the answers when the backup is read. The last one is repeated.
		reads []string
		code  int
		says  []string
	}{
		{
			"a backup shows its progress", create, begunBackup,
			[]string{`{"id":"b1","state":"RUNNING","files":3,"sizeBytes":2048}`, `{"id":"b1","state":"COMPLETE","files":5,"sizeBytes":4096,"archiveBytes":1024}`},
			exit.OK,
			[]string{"RUNNING: 0 files, 0 B\n", "RUNNING: 3 files, 2 KiB\n", "is complete: 5 files, 4 KiB in an archive of 1 KiB\n"},
		},
		{
			"a failed backup is a failure", create, begunBackup,
			[]string{`{"id":"b1","state":"FAILED","message":"the disk is full"}`},
			exit.Failed,
			[]string{"backup b1 of instance survival-1 failed: the disk is full\n"},
		},
		{
			"a backup that a killed agent did not complete is a failure", create, begunBackup,
			[]string{"404 instance survival-1 has no backup b1"},
			exit.Failed,
			[]string{"backup b1 was not completed: instance survival-1 has no backup b1\n", "back up again"},
		},
		{
			"an agent may be away for a while", create, begunBackup,
			[]string{unreachableNode, unreachableNode, unreachableNode, unreachableNode, `{"id":"b1","state":"COMPLETE"}`},
			exit.OK,
			[]string{"is tried again: the agent of node node-1 does not answer\n", "is complete"},
		},
		{
			"--timeout says that the backup continues", create + " --timeout 300ms", begunBackup,
			[]string{`{"id":"b1","state":"RUNNING","files":3}`},
			exit.TimedOut,
			[]string{"is RUNNING: 3 files, 0 B; the backup continues on the node: orrery backup list survival-1 shows its end"},
		},
		{
			"a restore shows its progress", restore, begunRestore,
			[]string{`{"id":"b1","state":"RESTORING","files":3,"sizeBytes":2048}`, `{"id":"b1","state":"COMPLETE","files":5,"sizeBytes":4096,"restoredAt":"2026-11-30T12:00:00Z"}`},
			exit.OK,
			[]string{"is RESTORING: 3 files, 2 KiB\n", "replaced the whole directory of instance survival-1 (5 files, 4 KiB)", "kept on the node for a day\n"},
		},
		{
			"a failed restore is a failure", restore, begunRestore,
			[]string{`{"id":"b1","state":"COMPLETE","message":"could not be restored: the archive is damaged","restoredAt":"2026-11-29T12:00:00Z"}`},
			exit.Failed,
			[]string{"backup b1 of instance survival-1 could not be restored: the archive is damaged\n", "the directory is as it was"},
		},
		{
			"a restore that a killed agent may not have ended is a failure", restore, begunRestore,
			[]string{`{"id":"b1","state":"COMPLETE","restoredAt":"2026-11-29T12:00:00Z"}`},
			exit.Failed,
			[]string{"it is unknown whether backup b1 of instance survival-1 was restored"},
		},
		{
			"a restore that a killed agent did not begin before is a failure", restore, `{"id":"b1","state":"RESTORING"}`,
			[]string{`{"id":"b1","state":"COMPLETE"}`},
			exit.Failed,
			[]string{"it is unknown whether"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := backupServer(t, c.begun, c.reads)
			got := clitest.Run(t, content.Commands, server, "", strings.Fields(c.command)...)
			if got.Code != c.code {
				t.Errorf("exit code %d, want %d", got.Code, c.code)
			}
			for _, text := range c.says {
				if !strings.Contains(got.Out+got.Err, text) {
					t.Errorf("it does not say %q", text)
				}
			}
			if t.Failed() {
				t.Log(got)
			}
		})
	}
}

// backupServer begins a backup or a restore, and then gives answers about it. An answer such as "404 not found" is a
// refusal.
func backupServer(t *testing.T, begun string, reads []string) string {
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := begun
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/backups/b1") {
			if got := r.URL.Query().Get("waitSeconds"); got != "8" {
				t.Errorf("the backup is read with waitSeconds=%q", got)
			}
			mu.Lock()
			answer = reads[0]
			reads = reads[min(1, len(reads)-1):]
			mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		status := 0
		if _, err := fmt.Sscanf(answer, "%d ", &status); err == nil {
			w.WriteHeader(status)
			answer = fmt.Sprintf(`{"error":{"code":"X","message":%q,"status":%d}}`, answer[len("404 "):], status)
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
