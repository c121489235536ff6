package templatesvc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/templatesvc"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// replicaVariable makes the test binary run as a replica. Its value is etcd's addresses,
// the blob directory and the replica's name, separated by spaces.
const replicaVariable = "ORRERY_TEST_TEMPLATESVC"

func TestMain(m *testing.M) {
	if what := os.Getenv(replicaVariable); what != "" {
		os.Exit(runReplica(strings.Fields(what)))
	}
	os.Exit(m.Run())
}

// runReplica prints its URL and serves until it is killed.
func runReplica(what []string) int {
	c, err := store.Dial(strings.Split(what[0], ","), store.Options{})
	if err == nil {
		var s *templatesvc.Service
		s, err = templatesvc.New(templatesvc.Config{
			Store: c, BlobDir: what[1], ClusterSecret: secret, Replica: what[2], Takeover: true, SessionTTL: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
		})
		if err == nil {
			fmt.Println(s.URL())
			err = s.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// replica is a replica in its own process.
type replica struct {
	*client.Client
	process *os.Process
}

func startReplica(t *testing.T, etcd *storetest.Cluster, blobs, name string) replica {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", replicaVariable, strings.Join(etcd.Endpoints(), ","), blobs, name))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	late := time.AfterFunc(await.Patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the replica does not begin: %v", err)
	}
	url = strings.TrimSpace(url)
	return replica{client.New(client.Config{Secret: secret, Resolve: func() []string { return []string{url} }}), cmd.Process}
}

func TestAPublisherThatIsKilledLeavesTheOldHead(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartCluster(t, 1)
	w := &world{t: t, c: etcd.Client(t), blobs: t.TempDir()}
	victim := startReplica(t, etcd, w.blobs, "a")
	put := func(r replica, body io.Reader) (client.Edited, error) {
		return r.PutFile(t.Context(), by("world"), 0, false, body)
	}
	if _, err := put(victim, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	before, _ := w.head()
	body, rest := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := put(victim, body)
		ended <- err
	}()
	if _, err := rest.Write([]byte(strings.Repeat("half of a world ", 1<<17))); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the publish is under way", func() string {
		n, err := store.Count(t.Context(), w.c, keys.TemplatePublishes())
		return await.Unless(n == 1, "%d publishes, %v", n, err)
	})
	if err := victim.process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = victim.process.Wait() // it is killed before the upload is complete
	_ = rest.Close()
	select {
	case err := <-ended:
		if !errs.Is(err, errs.Unavailable) {
			t.Errorf("the upload ended with %v", err)
		}
	case <-time.After(await.Patience):
		t.Fatal("the upload does not end")
	}
	if now, _ := w.head(); now.ModRev != before.ModRev || w.versions() != 1 {
		t.Errorf("the head was %+v and is %+v, with %d versions", before, now, w.versions())
	}

	next := startReplica(t, etcd, w.blobs, "b")
	if got, _ := contentOf(t, next.Client, before.Digest, "world"); got != "old" {
		t.Errorf("the old version holds %q", got)
	}
	e, err := put(next, strings.NewReader("new"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := contentOf(t, next.Client, e.Head.Digest, "world"); got != "new" || w.versions() != 2 {
		t.Errorf("the new version holds %q, of %d", got, w.versions())
	}
	await.That(t, "the publish that was cut off is over", func() string {
		n, err := store.Count(t.Context(), w.c, keys.TemplatePublishes())
		return await.Unless(n == 0, "%d publishes, %v", n, err)
	})
}
