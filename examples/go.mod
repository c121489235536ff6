module github.com/orreryhq/orrery/examples

go 1.26
