package heap

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dropImage has the kernel take the pages of the program's file, its code and its constants, out of the memory of the
// process. Most are of what only the start needed, or lie beside something that was: the kernel maps 64 KB around each
// page that is used. What is used comes back in the same way, from the page cache, which is not emptied. It does
// nothing where the kernel does not say what is mapped.
func dropImage() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for _, m := range imageMappings(program) {
		// A failure leaves the pages where they are.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// imageMappings returns the mappings of a file that cannot be written and that nobody has written to before, such as a
// loader or a debugger: only of these is the file all that there is.
func imageMappings(program string) (out []mapping) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"): // a range, its rights, offset, device, file
			m, ok := rangeOf(fields[0])
			ok = ok && (fields[1] == "r-xp" || fields[1] == "r--p") && strings.HasSuffix(lines.Text(), " "+program)
			out = append(out, mapping{})
			if ok {
				out[len(out)-1] = m
			}
		case len(fields) == 3 && len(out) > 0 && fields[1] != "0":
			if fields[0] == "Anonymous:" || fields[0] == "Swap:" {
				out[len(out)-1] = mapping{}
			}
		}
	}
	kept := out[:0]
	for _, m := range out {
		if m.end > m.start {
			kept = append(kept, m)
		}
	}
	return kept
}

// rangeOf reads a range of addresses, such as 400000-1a00000.
func rangeOf(text string) (mapping, bool) {
	from, to, found := strings.Cut(text, "-")
	start, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	return mapping{uintptr(start), uintptr(end)}, found && err == nil && err2 == nil
}
