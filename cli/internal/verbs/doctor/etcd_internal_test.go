package doctor

import (
	"testing"

	"github.com/tidwall/gjson"
)

func TestTheEtcdOfAStandaloneHasAName(t *testing.T) {
	for endpoint, want := range map[string]string{
		inProcess:               "the etcd of the standalone, version 3.7.3, uses 1 MiB",
		"https://10.0.0.1:2379": "etcd at https://10.0.0.1:2379, version 3.7.3, uses 1 MiB",
	} {
		var found findings
		checkEndpoint(&found, gjson.Parse(`{"endpoint":"`+endpoint+`","ok":true,"version":"3.7.3","dbSizeBytes":1048576,"dbSizeInUseBytes":1048576}`))
		if len(found) != 1 || found[0].Message != want {
			t.Errorf("%s: found %+v, want %q", endpoint, found, want)
		}
	}
}
