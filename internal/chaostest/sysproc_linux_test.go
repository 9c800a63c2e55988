package chaostest

import "syscall"

// dieWithParent has a child killed when the test's process ends, in whatever way.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
