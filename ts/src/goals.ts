import type { ChildReportedJson, ChildSpawnedJson, GoalEventJson } from "./gen/agentd/v1/goal_events_pb.js";
import { dateOf, msOf, numberOf, wordOf } from "./json.js";
import type { Open } from "./types.js";

/** GoalChange says that something has happened to a goal of the session; `kind` says what, and what else is said. */
export interface GoalChange {
  /** The goal; empty for a message. */
  readonly goalId: string;
  readonly kind: Open<"started" | "checkpointed" | "paused" | "resumed" | "ended" | "message" | "child_spawned" | "child_reported">;
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
  /** What has happened to a child of the session; undefined for anything else. */
  readonly child: ChildChange | undefined;
}

/** ChildChange is what has happened to a child of a session: it was spawned, has reported something, or has ended. */
export interface ChildChange {
  /** Its name, unique among the children of the session, and the session of its goal. */
  readonly name: string;
  readonly sessionId: string;
  /** Where it is in the tree of sessions, and what it is to reach; when it is spawned. */
  readonly branch: string;
  readonly goal: string;
  /** What a report is about: empty is an alert, and `text` is what it says. */
  readonly report: Open<"" | "started" | "completed" | "failed" | "stopped">;
  readonly text: string;
  /** True if its goal has ended, and what it has used then, with its own children. */
  readonly ended: boolean;
  readonly costUsd: number;
}

/** childChangeOf reads what has happened to a child. */
function childChangeOf(spawned: ChildSpawnedJson | undefined, reported: ChildReportedJson | undefined): ChildChange | undefined {
  if (spawned === undefined && reported === undefined) {
    return undefined;
  }
  return {
    name: spawned?.name ?? reported?.name ?? "",
    sessionId: spawned?.sessionId ?? reported?.sessionId ?? "",
    branch: spawned?.branch ?? "",
    goal: spawned?.goal ?? "",
    report: reported?.kind ?? "",
    text: reported?.text ?? "",
    ended: reported?.ended ?? false,
    costUsd: numberOf(reported?.costUsd),
  };
}

/** @internal goalChangeOf reads what has happened to a goal. */
export function goalChangeOf(m: GoalEventJson): GoalChange {
  const { goalId = "", started, checkpointed, ended, message, paused, resumed, childSpawned, childReported } = m;
  const kind =
    (started && "started") ??
    (checkpointed && "checkpointed") ??
    (paused && "paused") ??
    (resumed && "resumed") ??
    (ended && "ended") ??
    (message && "message") ??
    (childSpawned && "child_spawned") ??
    (childReported && "child_reported") ??
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
    child: childChangeOf(childSpawned, childReported),
  };
}
