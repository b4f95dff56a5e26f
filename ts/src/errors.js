/** The protocol's codes, in the order of their numbers. */
export const codes = [
    "UNSPECIFIED",
    "INTERNAL",
    "INVALID_AGENT_TREE",
    "RATE_LIMITED",
    "AUTH_FAILED",
    "SESSION_NOT_FOUND",
    "MODEL_UNAVAILABLE",
    "TIMEOUT",
    "SESSION_BUSY",
    "INVALID_REQUEST",
    "BUDGET_EXHAUSTED",
    "LIMIT_EXCEEDED",
    "PERMISSION_DENIED",
    "HISTORY_PURGED",
    "CONTENT_BLOCKED",
    "CONTEXT_TOO_LONG",
    "UNAVAILABLE",
    "CONFLICT",
    "FAILED_PRECONDITION",
    "OUTPUT_INVALID",
    "NOT_FOUND",
    "UNAUTHENTICATED",
];
/** Codes of errors that may be over when the same request is made again. */
const retryable = new Set([
    "RATE_LIMITED",
    "MODEL_UNAVAILABLE",
    "TIMEOUT",
    "SESSION_BUSY",
    "UNAVAILABLE",
]);
/**
 * AgentdError is why a call or a run failed. Everything this package throws is one, but for the reason of an
 * AbortSignal that the caller has aborted, which is thrown as it is.
 */
export class AgentdError extends Error {
    name = "AgentdError";
    /** The kind of error. */
    code;
    /** Whether the same request may succeed later. */
    retryable;
    /** The session, once it is known. */
    sessionId;
    /** The turn, once it is known. */
    turnId;
    /**
     * How long the server asks to wait before the same request is sent again, in milliseconds; undefined when it does not
     * know. Where this package itself tries again, it waits at least so long, and gives up when its own time is over
     * before.
     */
    retryAfterMs;
    /** What is wrong with which field of the request. */
    violations;
    /** The limit of the server, or the budget, that was exceeded. */
    limit;
    /** What the turn used; undefined if the server did not come to say it. */
    usage;
    constructor(code, message, details = {}) {
        super(message, { cause: details.cause });
        this.code = code;
        this.retryable = details.retryable ?? retryable.has(code);
        this.sessionId = details.sessionId;
        this.turnId = details.turnId;
        this.retryAfterMs = details.retryAfterMs;
        this.violations = details.violations ?? [];
        this.limit = details.limit;
        this.usage = details.usage;
    }
    /** toJSON is what JSON.stringify has of it. */
    toJSON() {
        const { name, code, message, retryable, sessionId, turnId, retryAfterMs, violations, limit, usage } = this;
        return { name, code, message, retryable, sessionId, turnId, retryAfterMs, violations, limit, usage };
    }
    /** with returns the same error with more details. */
    with(details) {
        return new AgentdError(this.code, this.message, {
            retryable: this.retryable,
            sessionId: details.sessionId ?? this.sessionId,
            turnId: details.turnId ?? this.turnId,
            retryAfterMs: details.retryAfterMs ?? this.retryAfterMs,
            violations: details.violations ?? this.violations,
            limit: details.limit ?? this.limit,
            usage: details.usage ?? this.usage,
            cause: this.cause ?? details.cause,
        });
    }
}
/** fromThrown is an error as this package throws it. */
export function fromThrown(thrown) {
    if (thrown instanceof AgentdError) {
        return thrown;
    }
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    return new AgentdError("UNAVAILABLE", `the request failed: ${message}`, { cause: thrown });
}
/**
 * isLost tells whether an error that ended a request is about the way to the server, or a server that is about to stop,
 * rather than about the request: the same one may be made again.
 */
export function isLost(err) {
    return err.code === "UNAVAILABLE" || err.code === "TIMEOUT" || err.code === "RATE_LIMITED";
}
//# sourceMappingURL=errors.js.map