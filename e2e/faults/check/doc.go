// Package check finds the broken promises of a fault run. Every check is a pure function of
// the records: the workloads' own files and etcd's history. It returns one sentence per
// problem.
package check
