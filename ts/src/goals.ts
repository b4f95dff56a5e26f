import type { GoalEventJson } from "./gen/agentd/v1/goal_events_pb.js";
import { dateOf, msOf, numberOf, wordOf } from "./json.js";
import type { Open } from "./types.js";

/** GoalChange says that something has happened to a goal of the session; `kind` says what, and what else is said. */
export interface GoalChange {
  /** The goal; empty for a message. */
  readonly goalId: string;
  readonly kind: Open<"started" | "checkpointed" | "paused" | "resumed" | "ended" | "message">;
  /** What is to be reached: when it starts, and in a checkpoint. */
  readonly goal: string;
  /** The turns of it that have ended, and what they have used. */
  readonly turns: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costUsd: number;
  /** What the last turn said last, and what was said with the done tool. */
  readonly finalText: string;
  readonly doneDetail: string;
  /** What it waits for, and until when. */
  readonly wait: Open<"unspecified" | "hold" | "ask" | "timer" | "backoff">;
  readonly waitUntil: Date | undefined;
  /** Why it has ended, and how it is then. */
  readonly reason: Open<
    | "unspecified"
    | "completed"
    | "max_turns_exceeded"
    | "max_tokens_exceeded"
    | "max_cost_exceeded"
    | "wallclock_exceeded"
    | "context_cancelled"
    | "retry_policy_aborted"
  >;
  readonly status: Open<"unspecified" | "running" | "paused" | "stopped" | "completed" | "failed">;
  /** Why the turn has failed, more about the end, or the message that has come. */
  readonly message: string;
  readonly durationMs: number;
}

/** @internal goalChangeOf reads what has happened to a goal. */
export function goalChangeOf(m: GoalEventJson): GoalChange {
  const { goalId = "", started, checkpointed, ended, message, paused, resumed } = m;
  const kind =
    (started && "started") ??
    (checkpointed && "checkpointed") ??
    (paused && "paused") ??
    (resumed && "resumed") ??
    (ended && "ended") ??
    (message && "message") ??
    "unspecified";
  const at = checkpointed ?? ended;
  return {
    goalId,
    kind,
    goal: started?.goal ?? checkpointed?.goal ?? "",
    turns: numberOf(started?.turns ?? at?.turns),
    inputTokens: numberOf(at?.inputTokens),
    outputTokens: numberOf(at?.outputTokens),
    costUsd: numberOf(at?.costUsd),
    finalText: at?.finalText ?? "",
    doneDetail: at?.doneDetail ?? "",
    wait: wordOf("GOAL_WAIT_", checkpointed?.wait),
    waitUntil: dateOf(checkpointed?.waitUntil),
    reason: wordOf("GOAL_REASON_", ended?.reason ?? checkpointed?.stopReason),
    status: wordOf("GOAL_STATUS_", ended?.status),
    message: ended?.message ?? checkpointed?.failure ?? message?.text ?? "",
    durationMs: msOf(ended?.duration) ?? 0,
  };
}
