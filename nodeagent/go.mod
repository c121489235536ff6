module github.com/orreryhq/orrery/nodeagent

go 1.26.0

require github.com/orreryhq/orrery/libs v0.0.0

require golang.org/x/sys v0.49.0

replace github.com/orreryhq/orrery/libs => ../libs

replace github.com/orreryhq/orrery/templatesvc => ../templatesvc
