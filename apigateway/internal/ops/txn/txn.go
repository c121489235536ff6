// Package txn commits changes of the fleet for the operations on all resources.
//
// An operation decides on a snapshot of the view. The Committer writes the decision in one etcd
// transaction that compares everything the decision rests on and contains the audit entry, and
// waits until the view shows the result. It decides again, a bounded number of times, when another
// change was faster.
//
// The package also remembers requests that are carried out once (Once), bounds how long a request
// waits for etcd (InTime), runs background jobs, and prunes the audit.
package txn
