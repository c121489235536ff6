module github.com/orreryhq/orrery/scheduler

go 1.26

require github.com/orreryhq/orrery/libs v0.0.0

replace github.com/orreryhq/orrery/libs => ../libs
