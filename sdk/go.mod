module github.com/orreryhq/orrery/sdk

go 1.26.0
