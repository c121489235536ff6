package etcdmember_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/store/etcdmember"
)

func TestAlarmAndNearlyFullQuotaAreWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		status etcdmember.Status
		want   string
	}{
		{"half of the quota", etcdmember.Status{DBSize: 1 << 30, Quota: 2 << 30}, ""},
		{"most of the quota", etcdmember.Status{DBSize: 1900 << 20, DBSizeInUse: 100 << 20, Quota: 2 << 30}, "has used 1900 of the 2048 MiB of its quota, 100 MiB"},
		{"an etcd that does not report its quota", etcdmember.Status{DBSize: 1900 << 20}, ""},
		{"an alarm", etcdmember.Status{Alarms: []string{"alarm: NOSPACE"}}, "NOSPACE"},
	} {
		got := strings.Join(c.status.Warnings(), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
