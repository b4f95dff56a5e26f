package fault

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// The codes of the protocol that refuse a request, by short names.
const (
	Internal        = agentdv1.ErrorCode_ERROR_CODE_INTERNAL
	SessionNotFound = agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	Timeout         = agentdv1.ErrorCode_ERROR_CODE_TIMEOUT
	Busy            = agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY
	Invalid         = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	Denied          = agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED
	LimitExceeded   = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	HistoryPurged   = agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED
	Conflict        = agentdv1.ErrorCode_ERROR_CODE_CONFLICT
	Precondition    = agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION
	NotFound        = agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND
	Unavailable     = agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE
)
