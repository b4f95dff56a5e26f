// Goals: chains of turns that the server starts by itself.
import type { Agentd } from "./agentd.js";
import { amountOf, countOf, pageSizeOf, sumOf, timeOf } from "./amounts.js";
import type { GoalJson } from "./gen/agentd/v1/goal_events_pb.js";
import type { ListGoalsRequestJson, StartGoalRequestJson } from "./gen/agentd/v1/goals_pb.js";
import type { AgentJson } from "./gen/agentd/v1/types_pb.js";
import type { GoalChange } from "./goals.js";
import { dateOf, enumOf, given, msOf, numberOf, wordOf } from "./json.js";
import { requestOf, type RunOptions } from "./options.js";
import { newKey } from "./text.js";
import type { Tool } from "./tool.js";
import { resolved, type Attachments } from "./treewalk.js";
import { pages, required, type Unary } from "./unary.js";

const yearMs = 31_536_000_000;

/** GoalOptions says what a goal is, what its turns run, and how far it may go; what is left out has no limit. */
export interface GoalOptions extends Pick<
  RunOptions,
  | "agent"
  | "agentRef"
  | "author"
  | "budget"
  | "create"
  | "idempotencyKey"
  | "instruction"
  | "instructionMode"
  | "labels"
  | "metadata"
  | "planMode"
  | "sessionBudget"
  | "sessionId"
  | "state"
  | "toolTimeoutMs"
> {
  /** What is to be reached: the prompt of the first turn. */
  goal: string;
  /** The prompt of the other turns; left out: "continue". */
  continuation?: string | undefined;
  /** The tool that ends the goal; left out: report_done. */
  doneTool?: { name?: string | undefined; description?: string | undefined } | undefined;
  /** Agents may say when the next turn begins, at most so far ahead. */
  schedule?: { maxDeferMs?: number | undefined } | undefined;
  /** Left out: 50. 0 is no limit. */
  maxTurns?: number | undefined;
  maxInputTokens?: number | undefined;
  maxOutputTokens?: number | undefined;
  maxCostUsd?: number | undefined;
  maxWallclockMs?: number | undefined;
  perTurnTimeoutMs?: number | undefined;
  /** What follows a turn that has failed; left out: abort. */
  onFailure?: "abort" | "retry" | "skip" | "ask" | undefined;
  /** Each turn waits 30 seconds for control "proceed". */
  holdTurns?: boolean | undefined;
}

/** Goal is a goal as it is now. */
export interface Goal extends Pick<
  GoalChange,
  | "costUsd"
  | "doneDetail"
  | "durationMs"
  | "finalText"
  | "goal"
  | "inputTokens"
  | "message"
  | "outputTokens"
  | "reason"
  | "status"
  | "turns"
  | "wait"
  | "waitUntil"
> {
  readonly sessionId: string;
  readonly id: string;
  /** The turn that is under way; empty for none. */
  readonly turnId: string;
  /** The server that drives it; empty when it has ended, and in lists. */
  readonly holder: string;
  readonly waitingMessages: number;
  readonly unpricedCalls: number;
  readonly startTime: Date | undefined;
  readonly endTime: Date | undefined;
  /** What WatchSessionOptions.cursor takes to begin with the goal. */
  readonly cursor: string;
}

/** GoalFilter says which goals to list; what is left out, or empty, narrows nothing. */
export interface GoalFilter {
  sessionId?: string | undefined;
  statuses?: readonly ("running" | "paused" | "stopped" | "completed" | "failed")[] | undefined;
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
}

/**
 * Goals has the server start turn after turn by itself. Their tools run at clients that attach to the turns: see
 * Agentd.attach and Sessions.watch. Each method makes one request, a list one for each page, and throws an AgentdError.
 */
export class Goals {
  readonly #unary: Unary;
  readonly #tools: () => ReadonlyMap<string, Tool>;
  readonly #attachments: Attachments;

  /** Makes the goals of a client's server. A page that has no use for them does not load them. */
  constructor(agentd: Agentd) {
    const { unary, tools, attachments } = agentd.inner();
    this.#unary = unary;
    this.#tools = tools;
    this.#attachments = attachments;
  }

  /** start begins a goal. A session that works on one, or runs a turn, is SESSION_BUSY. */
  async start(options: GoalOptions): Promise<Goal> {
    return goalOf((await this.#unary("GoalService/Start", this.request(options))).goal);
  }

  /** resume goes on with the last goal of a session, with what it has used; a completed one is returned as it is. */
  async resume(options: GoalOptions): Promise<Goal> {
    return goalOf((await this.#unary("GoalService/Resume", { goal: this.request(options) })).goal);
  }

  /** get returns the last goal of a session. That there is none is NOT_FOUND. */
  async get(sessionId: string): Promise<Goal> {
    return goalOf((await this.#unary("GoalService/Get", { sessionId })).goal);
  }

  /** list yields goals, newest first, page by page. */
  list(filter: GoalFilter = {}): AsyncGenerator<Goal, void, undefined> {
    const request = given<ListGoalsRequestJson>({
      sessionId: filter.sessionId,
      statuses: (filter.statuses ?? []).map((status) => enumOf("GOAL_STATUS_", status)),
      pageSize: pageSizeOf(filter.pageSize),
    });
    return pages(async (page) => {
      const { goals, nextPageToken } = await this.#unary("GoalService/List", { ...request, ...page });
      return { items: goals, nextPageToken };
    }, goalOf);
  }

  /** control does something to a goal, and returns it as it is then. */
  async control(
    sessionId: string,
    action: "pause" | "resume" | "stop" | "proceed" | "retry" | "skip" | "abort",
  ): Promise<Goal> {
    return goalOf((await this.#unary("GoalService/Control", { sessionId, action: enumOf("GOAL_ACTION_", action) })).goal);
  }

  /** inject has the next turn read a text, ahead of its prompt, and returns how many wait. */
  async inject(sessionId: string, text: string, idempotencyKey = newKey()): Promise<number> {
    return (await this.#unary("GoalService/Inject", { sessionId, text, idempotencyKey })).waitingMessages ?? 0;
  }

  /** @internal request is a goal on the wire. */
  request(o: GoalOptions): StartGoalRequestJson {
    const tree = o.agent === undefined ? undefined : resolved(o.agent as AgentJson, this.#tools(), this.#attachments);
    const tools = [...(tree?.used.values() ?? [])].map(({ declaration }) => declaration);
    const { userPrompt: goal = "", ...execute } = requestOf({ ...o, prompt: o.goal }, tree?.agent, tools);
    return {
      execute,
      ...given<Omit<StartGoalRequestJson, "execute">>({
        goal,
        continuationPrompt: o.continuation,
        doneTool: given({ ...o.doneTool }),
        maxInputTokens: sumOf("maxInputTokens", o.maxInputTokens),
        maxOutputTokens: sumOf("maxOutputTokens", o.maxOutputTokens),
        maxCost: amountOf("maxCostUsd", o.maxCostUsd ?? 0, { least: 0, most: Number.MAX_VALUE }),
        maxWallclock: timeOf("maxWallclockMs", o.maxWallclockMs, { most: yearMs }),
        perTurnTimeout: timeOf("perTurnTimeoutMs", o.perTurnTimeoutMs, { most: yearMs }),
        onFailure: enumOf("ON_FAILURE_", o.onFailure),
        holdTurns: o.holdTurns,
      }),
      ...(o.schedule === undefined
        ? {}
        : { schedule: given({ maxDefer: timeOf("schedule.maxDeferMs", o.schedule.maxDeferMs, { most: yearMs }) }) }),
      ...(o.maxTurns === undefined ? {} : { maxTurns: countOf("maxTurns", o.maxTurns) }),
    };
  }
}

function goalOf(message: GoalJson | undefined): Goal {
  const m = required(message, "a goal");
  return {
    sessionId: m.sessionId ?? "",
    id: m.goalId ?? "",
    goal: m.goal ?? "",
    status: wordOf("GOAL_STATUS_", m.status),
    reason: wordOf("GOAL_REASON_", m.reason),
    turns: numberOf(m.turns),
    inputTokens: numberOf(m.inputTokens),
    outputTokens: numberOf(m.outputTokens),
    costUsd: numberOf(m.costUsd),
    unpricedCalls: numberOf(m.unpricedCalls),
    finalText: m.finalText ?? "",
    doneDetail: m.doneDetail ?? "",
    turnId: m.turnId ?? "",
    wait: wordOf("GOAL_WAIT_", m.wait),
    waitUntil: dateOf(m.waitUntil),
    holder: m.holder ?? "",
    waitingMessages: m.waitingMessages ?? 0,
    message: m.message ?? "",
    startTime: dateOf(m.startTime),
    endTime: dateOf(m.endTime),
    durationMs: msOf(m.duration) ?? 0,
    cursor: m.cursor ?? "",
  };
}
