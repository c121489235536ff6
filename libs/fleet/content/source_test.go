package content_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestSourceValidation(t *testing.T) {
	one := content.TemplateRef{Group: "g", Name: "t"}
	sum := strings.Repeat("ab", 32)
	git := content.TemplateSource{Name: "s", Kind: content.SourceGit, URL: "https://host/r.git", Branch: "main"}
	s3 := content.TemplateSource{Name: "s", Kind: content.SourceS3, URL: "http://host:9000", Bucket: "bucket", Prefix: "a/b/"}
	http := content.TemplateSource{Name: "s", Kind: content.SourceHTTP, URL: "https://host/a.zip", SHA256: sum, Template: one}
	with := func(s content.TemplateSource, change func(*content.TemplateSource)) content.TemplateSource {
		change(&s)
		return s
	}
	for rule, c := range map[string]struct {
		source content.TemplateSource
		field  string // "": it is good
	}{
		"a repository":                   {git, ""},
		"a repository on disk":           {with(git, func(s *content.TemplateSource) { s.URL = "file:///srv/r.git" }), ""},
		"a bucket":                       {s3, ""},
		"an artifact":                    {http, ""},
		"no name":                        {with(git, func(s *content.TemplateSource) { s.Name = "" }), "name"},
		"the directory's name":           {with(git, func(s *content.TemplateSource) { s.Name = content.DirectoryOrigin }), "name"},
		"an unknown kind":                {with(git, func(s *content.TemplateSource) { s.Kind = "ftp" }), "kind"},
		"an artifact by file":            {with(http, func(s *content.TemplateSource) { s.URL = "file:///etc/passwd" }), "url"},
		"no host":                        {with(http, func(s *content.TemplateSource) { s.URL = "http:///x" }), "url"},
		"a password in the URL":          {with(git, func(s *content.TemplateSource) { s.URL = "https://u:p@host/r" }), "url"},
		"a token for a user in it":       {with(git, func(s *content.TemplateSource) { s.URL = "https://ghp_token@host/r" }), "url"},
		"keys in an endpoint":            {with(s3, func(s *content.TemplateSource) { s.URL = "http://key@host:9000" }), "url"},
		"a user of ssh":                  {with(git, func(s *content.TemplateSource) { s.URL, s.KnownHosts = "ssh://git@host/r", "host key" }), ""},
		"branch and tag":                 {with(git, func(s *content.TemplateSource) { s.Tag = "v1" }), "branch"},
		"an odd branch":                  {with(git, func(s *content.TemplateSource) { s.Branch = "a b" }), "branch"},
		"a short commit":                 {with(git, func(s *content.TemplateSource) { s.Branch, s.Commit = "", "abc" }), "commit"},
		"a path out of it":               {with(git, func(s *content.TemplateSource) { s.Path = "../x" }), "path"},
		"ssh without known hosts":        {with(git, func(s *content.TemplateSource) { s.URL = "ssh://git@host/r" }), "knownHosts"},
		"group and template":             {with(git, func(s *content.TemplateSource) { s.Group, s.Template = "g", one }), "group"},
		"a group of _":                   {with(git, func(s *content.TemplateSource) { s.Group = "_shared" }), ""},
		"a template of _":                {with(git, func(s *content.TemplateSource) { s.Template = content.TemplateRef{Group: "_shared", Name: "_base"} }), ""},
		"the group of users":             {with(git, func(s *content.TemplateSource) { s.Group = "_users" }), "group"},
		"a template of users":            {with(git, func(s *content.TemplateSource) { s.Template = content.TemplateRef{Group: "_users", Name: "x"} }), "template"},
		"an odd template":                {with(git, func(s *content.TemplateSource) { s.Template.Group = "g" }), "template"},
		"looked at every second":         {with(git, func(s *content.TemplateSource) { s.IntervalSeconds = 1 }), "intervalSeconds"},
		"no bucket":                      {with(s3, func(s *content.TemplateSource) { s.Bucket = "" }), "bucket"},
		"a prefix out":                   {with(s3, func(s *content.TemplateSource) { s.Prefix = "../" }), "prefix"},
		"half a hash":                    {with(http, func(s *content.TemplateSource) { s.SHA256 = "ab" }), "sha256"},
		"a pinned hash and a URL of one": {with(http, func(s *content.TemplateSource) { s.HashURL = "https://host/a.sha256" }), "hashUrl"},
		"a hash from http for https":     {with(http, func(s *content.TemplateSource) { s.SHA256, s.HashURL = "", "http://host/a.sha256" }), "hashUrl"},
		"a hash from a file":             {with(http, func(s *content.TemplateSource) { s.SHA256, s.HashURL = "", "file:///a.sha256" }), "hashUrl"},
		"a hash URL with a password":     {with(http, func(s *content.TemplateSource) { s.SHA256, s.HashURL = "", "https://u:p@host/a" }), "hashUrl"},
		"a hash URL of a repository":     {with(git, func(s *content.TemplateSource) { s.HashURL = "https://host/a.sha256" }), "kind"},
		"an artifact to nowhere":         {with(http, func(s *content.TemplateSource) { s.Template = content.TemplateRef{} }), "template"},
		"a bucket of a repository":       {with(git, func(s *content.TemplateSource) { s.Bucket = "bucket" }), "kind"},
		"a branch of an artifact":        {with(http, func(s *content.TemplateSource) { s.Branch = "main" }), "kind"},
		"a hash of a bucket":             {with(s3, func(s *content.TemplateSource) { s.SHA256 = sum }), "kind"},
		"a program":                      {content.TemplateSource{Name: "s", Kind: content.SourceProgram, Program: "bring.sh"}, ""},
		"a program by its path":          {content.TemplateSource{Name: "s", Kind: content.SourceProgram, Program: "../bring"}, "program"},
		"a program with arguments":       {content.TemplateSource{Name: "s", Kind: content.SourceProgram, Program: "bring -x"}, "program"},
		"a program that is an option":    {content.TemplateSource{Name: "s", Kind: content.SourceProgram, Program: "-x"}, "program"},
		"configurations":                 {content.TemplateSource{Name: "s", Kind: content.SourceConfigurations, Declares: true}, ""},
		"configurations with a URL":      {content.TemplateSource{Name: "s", Kind: content.SourceConfigurations, Declares: true, URL: "https://host"}, "url"},
		"configurations for nothing":     {content.TemplateSource{Name: "s", Kind: content.SourceConfigurations}, "declares"},
		"configurations of templates":    {content.TemplateSource{Name: "s", Kind: content.SourceConfigurations, Declares: true, Group: "g"}, "template"},
		"configurations somewhere":       {content.TemplateSource{Name: "s", Kind: content.SourceConfigurations, Declares: true, Path: "p"}, "kind"},
		"a bucket that declares":         {content.TemplateSource{Name: "s", Kind: content.SourceS3, URL: "https://host", Bucket: "abc", Declares: true}, "kind"},
		"a program with a URL":           {content.TemplateSource{Name: "s", Kind: content.SourceProgram, Program: "bring", URL: "https://host"}, "url"},
		"a program of a repository":      {with(git, func(s *content.TemplateSource) { s.Program = "bring" }), "kind"},
		"a file out of the template":     {with(http, func(s *content.TemplateSource) { s.File = "/x" }), "file"},
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
