//go:build !linux

package heap

// dropImage does nothing: what the kernel maps of the program's file is its own business here.
func dropImage() {}
