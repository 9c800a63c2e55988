//go:build !linux

package chaostest

import "syscall"

// dieWithParent has no equivalent here.
func dieWithParent() *syscall.SysProcAttr { return nil }
