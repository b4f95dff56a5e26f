package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/principal"
)

// TestRights: each method of the protocol says for whom it is, what it does not change is
// what an observer may ask for, and only what all share is for operators.
func TestRights(t *testing.T) {
	methods := map[string]protoreflect.MethodDescriptor{}
	pkg := agentdv1.File_agentd_v1_sessions_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				methods[fmt.Sprintf("/%s/%s", service.FullName(), m.Name())] = m
			}
		}
		return true
	})
	if len(methods) < 24 {
		t.Fatalf("the protocol has %d methods only", len(methods))
	}
	for procedure, m := range methods {
		need, listed := rights[procedure]
		if !listed {
			t.Errorf("%s is not in rights: say for whom it is", procedure)
			continue
		}
		name := string(m.Name())
		want := principal.Caller
		switch {
		case strings.HasSuffix(name, "SharedState"):
			want = principal.Operator
		case m.IsStreamingServer(), strings.HasPrefix(name, "Get"), strings.HasPrefix(name, "List"):
			want = principal.Observer
		}
		if need != want {
			t.Errorf("%s is for %v, want %v", procedure, need, want)
		}
	}
	for procedure := range rights {
		if methods[procedure] == nil {
			t.Errorf("rights names %s, which is no method", procedure)
		}
	}
}

// TestRightsOfUnlistedMethods: a method without an entry is for operators.
func TestRightsOfUnlistedMethods(t *testing.T) {
	const unlisted = "/agentd.v1.SessionService/DropEverything"
	for role, may := range map[principal.Role]bool{principal.Operator: true, principal.Caller: false, principal.Observer: false, 99: false} {
		e := mayCall(principal.Principal{ID: "x", Role: role}, unlisted)
		switch {
		case may && e != nil:
			t.Errorf("%v is refused: %v", role, e)
		case !may && (e == nil || e.Code != codeDenied || !strings.Contains(e.Message, "agentd.v1.SessionService/DropEverything")):
			t.Errorf("%v gets %v", role, e)
		}
	}
}
