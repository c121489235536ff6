module github.com/orreryhq/orrery/cli

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/orreryhq/orrery/sdk v0.0.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.10
	go.yaml.in/yaml/v3 v3.0.6
)

replace github.com/orreryhq/orrery/sdk => ../sdk
