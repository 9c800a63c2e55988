// Package phase records which phases of work a process is in, so that something outside can read it even after the
// process has been killed: how many appends, barriers, deltas, meta commits, merges, snapshots and restarts were under
// way at that moment.
//
// The record is a small file that the process maps into its memory, shared: an Enter or a Leave is one atomic addition,
// and what was written is in the kernel's page cache, where SIGKILL does not reach it. Tests that kill servers use it to
// aim, and to say afterwards what they have hit. It says nothing about what is durable, and is not read by Weir itself.
//
// A nil *Recorder records nothing and costs a comparison, so code that has phases needs no condition.
package phase
