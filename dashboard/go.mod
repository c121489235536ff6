module github.com/orreryhq/orrery/dashboard

go 1.26.0
