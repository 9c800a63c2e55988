// Package inject makes the clock and the disk of a process wrong, as a test outside of it says.
//
// The two share a page of memory, a mapped file: the test writes into it what is to be wrong (Control), and the process reads it at
// each look at its clock and each sync (Faults). So a fault begins and ends at once, without a call that the process would have to
// answer, lasts over a restart of the process, and costs an atomic load where it is looked for.
//
// A server maps no page unless it was started with --allow-fault-injection and told which one.
package inject
