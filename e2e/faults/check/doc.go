// Package check says what a fault run broke. Every checker is a pure function of
// what was recorded, the workloads' own files and etcd's history, and returns one
// sentence for each thing that must not be.
package check
