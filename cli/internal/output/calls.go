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
	{regexp.MustCompile(`POST /api/v1/groups/([^/\s]+)/deploy`), "orrery rollout start $1"},
	{regexp.MustCompile(`GET files/versions`), "orrery file versions"},
}

// The request in front of an answer that Orrery did not give: a status without a message, or no JSON.
var (
	strangeStatus = regexp.MustCompile(`(?:GET|POST|PUT|PATCH|DELETE) /api/v1/[^:\s]*: (\d{3} )`)
	strangeAnswer = regexp.MustCompile(`(?:GET|POST|PUT|PATCH|DELETE) /api/v1/[^:\s]*: (the answer )`)
)

// WithoutRequests returns the text of an error without the requests whose answers are not those of Orrery.
func WithoutRequests(text string) string {
	return strangeAnswer.ReplaceAllString(strangeStatus.ReplaceAllString(text, "the server answered $1"), "$1")
}

// Commands returns a sentence of the server with commands instead of requests of the API.
func Commands(text string) string {
	for _, c := range calls {
		text = c.pattern.ReplaceAllString(text, c.command)
	}
	return text
}
