module github.com/orreryhq/orrery/templatesvc

go 1.26.0

require github.com/orreryhq/orrery/libs v0.0.0

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/go-kit/kit v0.13.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/orreryhq/orrery/libs => ../libs
