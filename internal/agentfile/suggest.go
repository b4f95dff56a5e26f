package agentfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

// fields are the names that a message takes in a file.
func fields[V any](desc protoreflect.MessageDescriptor, more map[string]V) []string {
	out := slices.Collect(maps.Keys(more))
	for i := range desc.Fields().Len() {
		out = append(out, string(desc.Fields().Get(i).Name()))
	}
	slices.Sort(out)
	return out
}

// oneof lists the fields of which one may be set.
func oneof(of protoreflect.OneofDescriptor) string {
	var names []string
	for i := range of.Fields().Len() {
		names = append(names, string(of.Fields().Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// unknown says that there is no such field, and which may be meant.
func unknown(key string, known []string) string {
	text := fmt.Sprintf("unknown field %.64q", key)
	if near := yamlfile.Nearest(key, known); near != "" {
		return fmt.Sprintf("%s; did you mean %s?", text, near)
	}
	return fmt.Sprintf("%s; there are %s", text, strings.Join(known, ", "))
}
