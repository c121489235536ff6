package terminal

// onResize does nothing: Windows sends no signal when the size of a terminal changes.
func onResize(func()) (stop func()) { return func() {} }
