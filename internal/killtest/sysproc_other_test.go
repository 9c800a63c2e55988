//go:build !linux

package killtest

import "syscall"

// dieWithParent has no equivalent here.
func dieWithParent() *syscall.SysProcAttr { return nil }
