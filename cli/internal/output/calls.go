package output

import "regexp"

// calls are requests of the API in sentences of the server, and the commands that do the same.
var calls = []struct {
	pattern *regexp.Regexp
	command string
}{
	{regexp.MustCompile(`GET /api/v1/(?:services|instances)/([^/\s]+)/explain`), "orrery explain instance $1"},
	{regexp.MustCompile(`POST /api/v1/(?:services|instances)/([^/\s]+)/start\?discardData=true`), "orrery start instance $1 --discard-data"},
	{regexp.MustCompile(`POST /api/v1/(?:services|instances)/([^/\s]+)/wake`), "orrery wake $1"},
	{regexp.MustCompile(`POST /api/v1/notices/([^/\s]+)/test`), "orrery notice test $1"},
	{regexp.MustCompile(`GET /api/v1/crashes\?group=([^/\s]+)`), "orrery get crashes --group $1"},
	{regexp.MustCompile(`send POST /api/v1/groups/([^/\s]+)/crash-loop/reset`), "run orrery crash reset $1"},
	{regexp.MustCompile(`POST /api/v1/nodes/([^/\s]+)/unrevoke-cert`), "orrery unrevoke node $1"},
}

// Commands returns a sentence of the server with commands instead of requests of the API.
func Commands(text string) string {
	for _, c := range calls {
		text = c.pattern.ReplaceAllString(text, c.command)
	}
	return text
}
