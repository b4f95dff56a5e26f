//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/apzuk3/agentd/session"
)

const canWearOut = false

func wearOut(context.Context, session.Store, session.Batch) error { return errors.ErrUnsupported }
