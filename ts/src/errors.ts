// What can go wrong, in the protocol's own words.
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  RunResponse_ErrorResponseSchema,
  type RunResponse_ErrorResponse,
} from "./gen/agentd/v1/service_pb.js";
import { ErrorCode } from "./gen/agentd/v1/types_pb.js";
import type { Usage } from "./usage.js";

/** ErrorCodeName is a kind of error: the protocol's ErrorCode without its prefix, such as `SESSION_BUSY`. */
export type ErrorCodeName = keyof typeof ErrorCode;

/** Codes of errors that may be over when the same request is made again. */
const retryable: ReadonlySet<ErrorCodeName> = new Set<ErrorCodeName>([
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
  field: string;
  rule: string;
}

/** ExceededLimit is a limit and what went beyond it. The name has the unit; received is 0 when the server has not counted so far. */
export interface ExceededLimit {
  name: string;
  value: number;
  received: number;
}

/** ErrorDetails is what an {@link AgentdError} knows besides its code and its message. */
export interface ErrorDetails {
  /** Whether the same request may succeed later; left out: what the protocol says of the code. */
  retryable?: boolean;
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
 * AgentdError is why a call or a run failed. Everything this package throws is one, but for the reason of an AbortSignal that
 * the caller has aborted, which is thrown as it is.
 */
export class AgentdError extends Error {
  override readonly name = "AgentdError";
  /** The kind of error. */
  readonly code: ErrorCodeName;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** The session, once it is known. */
  readonly sessionId: string | undefined;
  /** The turn, once it is known. */
  readonly turnId: string | undefined;
  /**
   * How long the server asks to wait before the same request is sent again, in milliseconds; undefined when it does not know.
   * Where this package itself tries again, it waits at least so long, and gives up when its own time is over before.
   */
  readonly retryAfterMs: number | undefined;
  /** What is wrong with which field of the request. */
  readonly violations: readonly Violation[];
  /** The limit of the server, or the budget, that was exceeded. */
  readonly limit: ExceededLimit | undefined;
  /** What the turn used; undefined if the server did not come to say it. */
  readonly usage: Usage | undefined;

  constructor(code: ErrorCodeName, message: string, details: ErrorDetails = {}) {
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

/** codeNameOf names a code; a server may be newer than this client. */
export function codeNameOf(code: ErrorCode): ErrorCodeName {
  return (ErrorCode[code] as ErrorCodeName | undefined) ?? "UNSPECIFIED";
}

/** fromResponse translates an ErrorResponse of the server. */
export function fromResponse(response: RunResponse_ErrorResponse, details: ErrorDetails = {}): AgentdError {
  return new AgentdError(codeNameOf(response.code), response.message, {
    retryable: response.retryable,
    sessionId: response.sessionId === "" ? undefined : response.sessionId,
    turnId: response.turnId === "" ? undefined : response.turnId,
    retryAfterMs: response.retryAfter === undefined ? undefined : Math.max(durationMs(response.retryAfter), 0),
    violations: response.violations.map(({ field, rule }) => ({ field, rule })),
    limit: response.limit && {
      name: response.limit.name,
      value: Number(response.limit.value),
      received: Number(response.limit.received),
    },
    ...details,
  });
}

/** Codes of Connect that say what was wrong with the request; all others are a connection that did not work. */
const connectCodes: ReadonlyMap<Code, ErrorCodeName> = new Map<Code, ErrorCodeName>([
  [Code.DeadlineExceeded, "TIMEOUT"],
  [Code.Unauthenticated, "UNAUTHENTICATED"],
  [Code.PermissionDenied, "PERMISSION_DENIED"],
  [Code.ResourceExhausted, "LIMIT_EXCEEDED"],
]);

/** fromThrown translates what a transport has thrown. */
export function fromThrown(thrown: unknown): AgentdError {
  if (thrown instanceof AgentdError) {
    return thrown;
  }
  const err = ConnectError.from(thrown);
  if (err.cause instanceof AgentdError) {
    return err.cause; // of this package's own fetch
  }
  const detail = err.findDetails(RunResponse_ErrorResponseSchema)[0];
  if (detail !== undefined) {
    return fromResponse(detail, { cause: err });
  }
  if (err.code === Code.Unimplemented) {
    return new AgentdError("INVALID_REQUEST", `this address does not serve what was asked for: ${err.rawMessage}`, { cause: err });
  }
  const asked = err.metadata.get("Retry-After") ?? ""; // of a proxy
  return new AgentdError(connectCodes.get(err.code) ?? "UNAVAILABLE", `the request failed: ${err.code === Code.Unknown ? err.rawMessage : err.message}`, {
    retryAfterMs: /^\d{1,9}$/.test(asked) ? Number(asked) * 1000 : undefined,
    cause: err,
  });
}

/**
 * isLost tells whether an error that ended a request is about the way to the server, or a server that is about to stop, rather
 * than about the request: the same one may be made again.
 */
export function isLost(err: AgentdError): boolean {
  return err.code === "UNAVAILABLE" || err.code === "TIMEOUT" || err.code === "RATE_LIMITED";
}
