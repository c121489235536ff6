package resource

// Sizes of the largest page of a list, chosen for clients of PrexorCloud's API.
const (
	LargePage  = 500
	MediumPage = 200
	SmallPage  = 100
)
