module github.com/orreryhq/orrery/e2e/workloads/raknetping

go 1.26

require github.com/sandertv/go-raknet v1.15.0
