package client

import (
	"context"
	"iter"
	"maps"

	"connectrpc.com/connect"
)

// unary makes a request that is no run.
func unary[Req, Resp any](
	ctx context.Context, c *Client, opts []RequestOption,
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), msg *Req,
) (*Resp, error) {
	rc, err := c.request(opts)
	if err != nil {
		return nil, err
	}
	return unaryWith(ctx, c, rc, method, msg)
}

// unaryWith is unary with options that have been applied.
func unaryWith[Req, Resp any](
	ctx context.Context, c *Client, rc *runConfig,
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), msg *Req,
) (*Resp, error) {
	ctx, sent := c.newSentToken(ctx)
	for again := false; ; again = true {
		req := connect.NewRequest(msg)
		maps.Copy(req.Header(), rc.header)
		resp, err := method(ctx, req)
		if err == nil {
			return resp.Msg, nil
		}
		failure := fromUnary(ctx, err)
		if again || !sent.renewed(ctx, failure) {
			return nil, failure
		}
	}
}

// pages yields what the pages of a list hold. The next page is asked for when the one
// before was taken.
func pages[T any](page func(token string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			items, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// maxPage is the protocol's.
const maxPage = 1000

// sizedPages is pages of a size that the caller has chosen; 0 is the server's own.
func sizedPages[T any](
	size int, page func(size int32, token string) (items []T, next string, err error),
) iter.Seq2[T, error] {
	return pages(func(token string) ([]T, string, error) {
		if size < 0 || size > maxPage {
			return nil, "", errorf(ErrInvalidRequest, "PageSize: want 0 to %d, got %d", maxPage, size)
		}
		return page(int32(size), token)
	})
}

// mapped translates a list; nil for an empty one.
func mapped[A, B any](list []A, f func(A) B) []B {
	var out []B
	for _, item := range list {
		out = append(out, f(item))
	}
	return out
}
