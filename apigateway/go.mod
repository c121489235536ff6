module github.com/orreryhq/orrery/apigateway

go 1.26

require (
	github.com/orreryhq/orrery/libs v0.0.0
	github.com/orreryhq/orrery/nodeagent v0.0.0
	github.com/orreryhq/orrery/templatesvc v0.0.0
)

replace github.com/orreryhq/orrery/libs => ../libs

replace github.com/orreryhq/orrery/nodeagent => ../nodeagent

replace github.com/orreryhq/orrery/templatesvc => ../templatesvc
