package mosquitto

import "syscall"

// dieWithParent has the kernel kill the server when the thread that started it ends; see spawn. The server must keep its user for
// that (the option "user" in its configuration): the kernel forgets the signal when a process changes its credentials.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // Ctrl-C on a terminal is for us, who end it in order, and not for it
	}
}
