module github.com/orreryhq/orrery/nodeagent

go 1.26.0

require github.com/orreryhq/orrery/libs v0.0.0

require (
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/go-kit/kit v0.13.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/orreryhq/orrery/libs => ../libs

replace github.com/orreryhq/orrery/templatesvc => ../templatesvc
