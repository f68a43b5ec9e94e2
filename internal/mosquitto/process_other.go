//go:build !linux

package mosquitto

import "syscall"

// dieWithParent does nothing: only Linux can tie a child's life to its parent's. Close ends the server.
func dieWithParent() *syscall.SysProcAttr { return nil }
