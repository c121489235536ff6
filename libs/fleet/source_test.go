package fleet_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestASourceIsValidatedFieldByField(t *testing.T) {
	one := fleet.TemplateRef{Group: "g", Name: "t"}
	sum := strings.Repeat("ab", 32)
	git := fleet.TemplateSource{Name: "s", Kind: fleet.SourceGit, URL: "https://host/r.git", Branch: "main"}
	s3 := fleet.TemplateSource{Name: "s", Kind: fleet.SourceS3, URL: "http://host:9000", Bucket: "bucket", Prefix: "a/b/"}
	http := fleet.TemplateSource{Name: "s", Kind: fleet.SourceHTTP, URL: "https://host/a.zip", SHA256: sum, Template: one}
	with := func(s fleet.TemplateSource, change func(*fleet.TemplateSource)) fleet.TemplateSource {
		change(&s)
		return s
	}
	for rule, c := range map[string]struct {
		source fleet.TemplateSource
		field  string // "": it is good
	}{
		"a repository":                   {git, ""},
		"a repository on disk":           {with(git, func(s *fleet.TemplateSource) { s.URL = "file:///srv/r.git" }), ""},
		"a bucket":                       {s3, ""},
		"an artifact":                    {http, ""},
		"no name":                        {with(git, func(s *fleet.TemplateSource) { s.Name = "" }), "name"},
		"the directory's name":           {with(git, func(s *fleet.TemplateSource) { s.Name = fleet.DirectoryOrigin }), "name"},
		"an unknown kind":                {with(git, func(s *fleet.TemplateSource) { s.Kind = "ftp" }), "kind"},
		"an artifact by file":            {with(http, func(s *fleet.TemplateSource) { s.URL = "file:///etc/passwd" }), "url"},
		"no host":                        {with(http, func(s *fleet.TemplateSource) { s.URL = "http:///x" }), "url"},
		"a password in the URL":          {with(git, func(s *fleet.TemplateSource) { s.URL = "https://u:p@host/r" }), "url"},
		"a token for a user in it":       {with(git, func(s *fleet.TemplateSource) { s.URL = "https://ghp_token@host/r" }), "url"},
		"keys in an endpoint":            {with(s3, func(s *fleet.TemplateSource) { s.URL = "http://key@host:9000" }), "url"},
		"a user of ssh":                  {with(git, func(s *fleet.TemplateSource) { s.URL, s.KnownHosts = "ssh://git@host/r", "host key" }), ""},
		"branch and tag":                 {with(git, func(s *fleet.TemplateSource) { s.Tag = "v1" }), "branch"},
		"an odd branch":                  {with(git, func(s *fleet.TemplateSource) { s.Branch = "a b" }), "branch"},
		"a short commit":                 {with(git, func(s *fleet.TemplateSource) { s.Branch, s.Commit = "", "abc" }), "commit"},
		"a path out of it":               {with(git, func(s *fleet.TemplateSource) { s.Path = "../x" }), "path"},
		"ssh without known hosts":        {with(git, func(s *fleet.TemplateSource) { s.URL = "ssh://git@host/r" }), "knownHosts"},
		"group and template":             {with(git, func(s *fleet.TemplateSource) { s.Group, s.Template = "g", one }), "group"},
		"a group of _":                   {with(git, func(s *fleet.TemplateSource) { s.Group = "_shared" }), ""},
		"a template of _":                {with(git, func(s *fleet.TemplateSource) { s.Template = fleet.TemplateRef{Group: "_shared", Name: "_base"} }), ""},
		"the group of users":             {with(git, func(s *fleet.TemplateSource) { s.Group = "_users" }), "group"},
		"a template of users":            {with(git, func(s *fleet.TemplateSource) { s.Template = fleet.TemplateRef{Group: "_users", Name: "x"} }), "template"},
		"an odd template":                {with(git, func(s *fleet.TemplateSource) { s.Template.Group = "g" }), "template"},
		"looked at every second":         {with(git, func(s *fleet.TemplateSource) { s.IntervalSeconds = 1 }), "intervalSeconds"},
		"no bucket":                      {with(s3, func(s *fleet.TemplateSource) { s.Bucket = "" }), "bucket"},
		"a prefix out":                   {with(s3, func(s *fleet.TemplateSource) { s.Prefix = "../" }), "prefix"},
		"half a hash":                    {with(http, func(s *fleet.TemplateSource) { s.SHA256 = "ab" }), "sha256"},
		"a pinned hash and a URL of one": {with(http, func(s *fleet.TemplateSource) { s.HashURL = "https://host/a.sha256" }), "hashUrl"},
		"a hash from http for https":     {with(http, func(s *fleet.TemplateSource) { s.SHA256, s.HashURL = "", "http://host/a.sha256" }), "hashUrl"},
		"a hash from a file":             {with(http, func(s *fleet.TemplateSource) { s.SHA256, s.HashURL = "", "file:///a.sha256" }), "hashUrl"},
		"a hash URL with a password":     {with(http, func(s *fleet.TemplateSource) { s.SHA256, s.HashURL = "", "https://u:p@host/a" }), "hashUrl"},
		"a hash URL of a repository":     {with(git, func(s *fleet.TemplateSource) { s.HashURL = "https://host/a.sha256" }), "kind"},
		"an artifact to nowhere":         {with(http, func(s *fleet.TemplateSource) { s.Template = fleet.TemplateRef{} }), "template"},
		"a bucket of a repository":       {with(git, func(s *fleet.TemplateSource) { s.Bucket = "bucket" }), "kind"},
		"a branch of an artifact":        {with(http, func(s *fleet.TemplateSource) { s.Branch = "main" }), "kind"},
		"a hash of a bucket":             {with(s3, func(s *fleet.TemplateSource) { s.SHA256 = sum }), "kind"},
		"a program":                      {fleet.TemplateSource{Name: "s", Kind: fleet.SourceProgram, Program: "bring.sh"}, ""},
		"a program by its path":          {fleet.TemplateSource{Name: "s", Kind: fleet.SourceProgram, Program: "../bring"}, "program"},
		"a program with arguments":       {fleet.TemplateSource{Name: "s", Kind: fleet.SourceProgram, Program: "bring -x"}, "program"},
		"a program that is an option":    {fleet.TemplateSource{Name: "s", Kind: fleet.SourceProgram, Program: "-x"}, "program"},
		"configurations":                 {fleet.TemplateSource{Name: "s", Kind: fleet.SourceConfigurations, Declares: true}, ""},
		"configurations with a URL":      {fleet.TemplateSource{Name: "s", Kind: fleet.SourceConfigurations, Declares: true, URL: "https://host"}, "url"},
		"configurations for nothing":     {fleet.TemplateSource{Name: "s", Kind: fleet.SourceConfigurations}, "declares"},
		"configurations of templates":    {fleet.TemplateSource{Name: "s", Kind: fleet.SourceConfigurations, Declares: true, Group: "g"}, "template"},
		"configurations somewhere":       {fleet.TemplateSource{Name: "s", Kind: fleet.SourceConfigurations, Declares: true, Path: "p"}, "kind"},
		"a bucket that declares":         {fleet.TemplateSource{Name: "s", Kind: fleet.SourceS3, URL: "https://host", Bucket: "abc", Declares: true}, "kind"},
		"a program with a URL":           {fleet.TemplateSource{Name: "s", Kind: fleet.SourceProgram, Program: "bring", URL: "https://host"}, "url"},
		"a program of a repository":      {with(git, func(s *fleet.TemplateSource) { s.Program = "bring" }), "kind"},
		"a file out of the template":     {with(http, func(s *fleet.TemplateSource) { s.File = "/x" }), "file"},
	} {
		t.Run(rule, func(t *testing.T) {
			problems := c.source.Validate()
			switch {
			case c.field == "" && len(problems) > 0:
				t.Errorf("%v", problems)
			case c.field != "" && (len(problems) == 0 || errs.FieldOf(problems[0]) != c.field):
				t.Errorf("%v, want one of %s", problems, c.field)
			}
		})
	}
}
