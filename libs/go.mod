module github.com/orreryhq/orrery/libs

go 1.26
