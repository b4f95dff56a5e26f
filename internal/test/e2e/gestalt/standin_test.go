package gestalt_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// What a real host starts besides agentd, and has nothing to do with it: this program is that, by its first argument.
const (
	// relays SOCKET is an IndexedDB provider that is there already, and stays when the host goes.
	relays = "relays"
	// noCredentials is a provider of external credentials, of which it has none.
	noCredentials = "no-credentials"
)

// standIn is what this program does in place of the tests, if its arguments say so. It ends with its parent, or when it
// is killed.
func standIn(args []string) (bool, error) {
	var run func(context.Context, net.Listener) error
	switch {
	case len(args) == 2 && args[0] == relays:
		run = func(ctx context.Context, l net.Listener) error { return relay(ctx, l, args[1]) }
	case len(args) == 1 && args[0] == noCredentials:
		run = haveNone
	default:
		return false, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", os.Getenv("GESTALT_PLUGIN_SOCKET"))
	if err != nil {
		return true, err
	}
	go func() { // ends with the process
		for parent := os.Getppid(); os.Getppid() == parent; {
			time.Sleep(100 * time.Millisecond)
		}
		_ = l.Close()
	}()
	if err := run(ctx, l); !errors.Is(err, net.ErrClosed) {
		return true, err
	}
	return true, nil
}

// relay passes on connections to a socket.
func relay(ctx context.Context, l net.Listener, to string) error {
	for {
		in, err := l.Accept()
		if err != nil {
			return err
		}
		var d net.Dialer
		out, err := d.DialContext(ctx, "unix", to)
		if err != nil {
			return errors.Join(err, in.Close())
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() { // ends with either connection
				_, _ = io.Copy(pair[0], pair[1])
				_, _ = pair[0].Close(), pair[1].Close()
			}()
		}
	}
}

// haveNone answers each call of another service with an empty message.
func haveNone(_ context.Context, l net.Listener) error {
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	const externalCredential gestaltv1.ProviderKind = 12
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "gestalt.provider.v1.ProviderLifecycle", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "GetProviderIdentity", Handler: unary(func(context.Context, *emptypb.Empty) (*gestaltv1.ProviderIdentity, error) {
				return &gestaltv1.ProviderIdentity{Kind: externalCredential, Name: noCredentials, MinProtocolVersion: 3, MaxProtocolVersion: 3}, nil
			})},
			{MethodName: "ConfigureProvider", Handler: unary(func(_ context.Context, r *gestaltv1.ConfigureProviderRequest) (*gestaltv1.ConfigureProviderResponse, error) {
				return &gestaltv1.ConfigureProviderResponse{ProtocolVersion: r.GetProtocolVersion()}, nil
			})},
			{MethodName: "HealthCheck", Handler: unary(func(context.Context, *emptypb.Empty) (*gestaltv1.HealthCheckResponse, error) {
				return &gestaltv1.HealthCheckResponse{Ready: true}, nil
			})},
		},
	}, nil)
	if err := s.Serve(l); err != nil {
		return fmt.Errorf("%w: %w", net.ErrClosed, err) // it was closed
	}
	return nil
}
