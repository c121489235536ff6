module github.com/orreryhq/orrery/e2e

go 1.26

require (
	github.com/orreryhq/orrery/apigateway v0.0.0
	github.com/orreryhq/orrery/enforcer v0.0.0
	github.com/orreryhq/orrery/examples v0.0.0
	github.com/orreryhq/orrery/libs v0.0.0
	github.com/orreryhq/orrery/nodeagent v0.0.0
	github.com/orreryhq/orrery/scheduler v0.0.0
	github.com/orreryhq/orrery/standalone v0.0.0
	github.com/orreryhq/orrery/templatesvc v0.0.0
)

replace github.com/orreryhq/orrery/libs => ../libs

replace github.com/orreryhq/orrery/enforcer => ../enforcer

replace github.com/orreryhq/orrery/scheduler => ../scheduler

replace github.com/orreryhq/orrery/nodeagent => ../nodeagent

replace github.com/orreryhq/orrery/templatesvc => ../templatesvc

replace github.com/orreryhq/orrery/apigateway => ../apigateway

replace github.com/orreryhq/orrery/standalone => ../standalone

replace github.com/orreryhq/orrery/examples => ../examples
