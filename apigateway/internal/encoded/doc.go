// Package encoded keeps answers that were encoded, so that what many ask for is encoded once.
//
//	Objects  single objects, each as long as the records it is shown from are the same
//	Memo     lists and other wholes, as long as the edition of the fleet is the same
//	Body     what is sent of a whole, as it is and packed
//
// Nothing here is ever out of date: what a body was made of is compared, or named by its
// edition, and a body of anything else is not given out. Who may see it is not asked here.
// So what is kept is only what everybody who reaches it is shown in the same way; what
// depends on who asks belongs into the name or the edition, or is not kept.
package encoded
