package heap

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// imageKB returns how much of files is in the memory of this process.
func imageKB(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "RssFile:" {
			kb, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Fatal("the kernel does not say what of files is in memory")
	return 0
}

// TestDropImage: the pages of the program leave the memory of the process, which goes on.
func TestDropImage(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(imageMappings(program)) == 0 {
		t.Fatal("the program is not found in what is mapped")
	}
	for _, m := range imageMappings("/none") {
		t.Errorf("%x is of no file", m)
	}
	touch := imageKB(t)
	dropImage()
	after := imageKB(t)
	t.Logf("%d KB of the program's %d were in memory, now %d", touch, len(file)>>10, after)
	if after >= touch {
		t.Errorf("%d KB of files are in memory, %d were before", after, touch)
	}
}
