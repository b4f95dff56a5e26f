package chat

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/plainfile"
)

// maxChanged is how large a file may be whose change is shown, in bytes.
const maxChanged = 256 << 10

// changeOf is what a call of a tool would change in a file, as lines of a diff; nil if it changes none. The file is
// read as it is now, not as the model has read it.
func changeOf(root string, call *client.ToolCall) []string {
	var in struct {
		Path, Content string
		OldString     string `json:"old_string"`
		NewString     string `json:"new_string"`
		ReplaceAll    bool   `json:"replace_all"`
	}
	changes := call.Name == "edit_file" || call.Name == "write_file"
	if !changes || json.Unmarshal(call.Input, &in) != nil || in.Path == "" {
		return nil
	}
	path := in.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	data, err := plainfile.Read(filepath.Dir(path), filepath.Base(path), maxChanged)
	before, after := string(data), in.Content
	switch {
	case errors.Is(err, fs.ErrNotExist) && call.Name == "write_file":
		before = ""
	case err != nil || !utf8.Valid(data) || len(in.Content) > maxChanged:
		if call.Name == "write_file" {
			return bars([]string{"(the change cannot be shown)"})
		}
		before, after = in.OldString, in.NewString
	case call.Name == "edit_file":
		if !strings.Contains(before, in.OldString) || in.OldString == "" {
			before, after = in.OldString, in.NewString
			break
		}
		n := 1
		if in.ReplaceAll {
			n = -1
		}
		after = strings.Replace(before, in.OldString, in.NewString, n)
	}
	if before == after {
		return bars([]string{"(nothing changes)"})
	}
	diff := strings.TrimRight(udiff.Unified(in.Path, in.Path, before, after), "\n")
	return bars(visible(strings.ReplaceAll(diff, "\t", "    ")))
}
