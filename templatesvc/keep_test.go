package templatesvc_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orreryhq/orrery/templatesvc"
)

func TestWhatIsCountedOfContentIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	w, figures := newWorld(t), prometheus.NewRegistry()
	w.startWith(templatesvc.Config{Replica: "a", BlobDir: w.blobs, Metrics: figures})
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(figures, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`orrery_templatesvc_scrubbed_blobs_total{health="corrupt"} 0`, `orrery_templatesvc_scrubbed_blobs_total{health="healed"} 0`,
		`orrery_templatesvc_scrubbed_blobs_total{health="sound"} 0`, `orrery_templatesvc_scrubbed_blobs_total{health="unread"} 0`,
		"orrery_templatesvc_collected_blobs_total 0", "orrery_templatesvc_collected_bytes_total 0",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
}
