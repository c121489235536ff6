package config

import (
	"fmt"
	"strings"
)

// Reference returns a Markdown table of all settings of a struct, in its order. The struct's
// values do not matter. The error is Internal if tags are wrong.
func Reference(of any) (string, error) {
	sch, err := schemaOf(of)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| Key | Type | Default | Environment | Flag | Meaning |\n|---|---|---|---|---|---|\n")
	for _, s := range sch.settings {
		typ, env := s.kind.String(), code(s.env())
		if s.secret {
			typ, env = "secret", env+" or "+code(s.env()+"_FILE")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			code(s.key), typ, code(s.def), env, code("--"+s.flag()), cell(s.usage))
	}
	return b.String(), nil
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
