package server_test

import (
	"math"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	codeInvalid     = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	codeTree        = agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE
	codeLimit       = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	codeTimeout     = agentdv1.ErrorCode_ERROR_CODE_TIMEOUT
	codeUnavailable = agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE
)

var inf = math.Inf(1)
