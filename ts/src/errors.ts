// What can go wrong, in the protocol's own words.
import type { Usage } from "./usage.js";

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
] as const;

/**
 * ErrorCode is a kind of error: the protocol's ErrorCode without its prefix, such as `SESSION_BUSY`. One that this
 * client does not know is `UNSPECIFIED`.
 */
export type ErrorCode = (typeof codes)[number];

/** Codes of errors that may be over when the same request is made again. */
const retryable: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "RATE_LIMITED",
  "MODEL_UNAVAILABLE",
  "TIMEOUT",
  "SESSION_BUSY",
  "UNAVAILABLE",
]);

/**
 * Violation is a field of a request, by its path, and the rule that it breaks: the id of a rule of the protos, such as
 * `string.max_len`, or a word such as `required` or `unknown` (docs/errors.md has the list, which may grow).
 */
export interface Violation {
  readonly field: string;
  readonly rule: string;
}

/**
 * ExceededLimit is a limit and what went beyond it. The name has the unit; received is 0 when the server has not
 * counted so far.
 */
export interface ExceededLimit {
  readonly name: string;
  readonly value: number;
  readonly received: number;
}

/** ErrorDetails is what an {@link AgentdError} knows besides its code and its message. */
export interface ErrorDetails {
  /** Whether the same request may succeed later; left out: what the protocol says of the code. */
  retryable?: boolean | undefined;
  /** The session, once it is known. */
  sessionId?: string | undefined;
  /** The turn, once it is known. */
  turnId?: string | undefined;
  /** How long the server asks to wait before the same request is sent again, in milliseconds. */
  retryAfterMs?: number | undefined;
  /** What is wrong with which field of the request. */
  violations?: readonly Violation[] | undefined;
  /** The limit of the server, or the budget, that was exceeded. */
  limit?: ExceededLimit | undefined;
  /** What the turn used, if the server came to say it. */
  usage?: Usage | undefined;
  /** The cause on this side of the wire. */
  cause?: unknown;
}

/**
 * AgentdError is why a call or a run failed. Everything this package throws is one, but for the reason of an
 * AbortSignal that the caller has aborted, which is thrown as it is.
 */
export class AgentdError extends Error {
  override readonly name = "AgentdError";
  /** The kind of error. */
  readonly code: ErrorCode;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** The session, once it is known. */
  readonly sessionId: string | undefined;
  /** The turn, once it is known. */
  readonly turnId: string | undefined;
  /**
   * How long the server asks to wait before the same request is sent again, in milliseconds; undefined when it does not
   * know. Where this package itself tries again, it waits at least so long, and gives up when its own time is over
   * before.
   */
  readonly retryAfterMs: number | undefined;
  /** What is wrong with which field of the request. */
  readonly violations: readonly Violation[];
  /** The limit of the server, or the budget, that was exceeded. */
  readonly limit: ExceededLimit | undefined;
  /** What the turn used; undefined if the server did not come to say it. */
  readonly usage: Usage | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
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
  toJSON(): Record<string, unknown> {
    const { name, code, message, retryable, sessionId, turnId, retryAfterMs, violations, limit, usage } = this;
    return { name, code, message, retryable, sessionId, turnId, retryAfterMs, violations, limit, usage };
  }

  /** with returns the same error with more details. */
  with(details: ErrorDetails): AgentdError {
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
export function fromThrown(thrown: unknown): AgentdError {
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
export function isLost(err: AgentdError): boolean {
  return err.code === "UNAVAILABLE" || err.code === "TIMEOUT" || err.code === "RATE_LIMITED";
}
