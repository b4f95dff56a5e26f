// Schedules: prompts and goals that the server starts by itself.
import type { Agentd } from "./agentd.js";
import { pageSizeOf, timeOf } from "./amounts.js";
import type { CreateScheduleRequestJson, ScheduleJson } from "./gen/agentd/v1/schedules_pb.js";
import { Goals, type GoalOptions } from "./goalcalls.js";
import { dateOf, given, msOf, numberOf } from "./json.js";
import { timesOf } from "./tojson.js";
import { pages, required, type Unary } from "./unary.js";

/** ScheduleOptions says what a server is to start, and when: one of cron, everyMs and at; one of prompt and goal. */
export interface ScheduleOptions extends Omit<GoalOptions, "goal" | "idempotencyKey" | "create"> {
  /** What it is to be called; left out: the server names it. */
  id?: string | undefined;
  /** Minute, hour, day of the month, month and day of the week, in a zone such as Europe/Berlin; left out: UTC. */
  cron?: string | undefined;
  zone?: string | undefined;
  /** The time from one run to the next, from 10 seconds to a year. */
  everyMs?: number | undefined;
  /** The time of its one run. */
  at?: Date | undefined;
  /** What each run is told, or the goal that it begins. */
  prompt?: string | undefined;
  goal?: string | undefined;
}

/** Schedule is what a server starts by itself. */
export interface Schedule {
  readonly id: string;
  readonly cron: string;
  readonly zone: string;
  readonly everyMs: number | undefined;
  readonly at: Date | undefined;
  readonly sessionId: string;
  readonly createdBy: string;
  readonly createTime: Date | undefined;
  /** When the next run is; undefined if there is none any more. */
  readonly nextTime: Date | undefined;
  readonly lastTime: Date | undefined;
  readonly lastTurnId: string;
  /** Why the last run was refused, or why the next one waits; empty if neither. */
  readonly lastError: string;
  readonly runs: number;
}

/** Schedules keeps schedules. Each method makes one request, a list one for each page, and throws an AgentdError. */
export class Schedules {
  readonly #unary: Unary;
  readonly #goals: Goals;

  /** Makes the schedules of a client's server. */
  constructor(agentd: Agentd) {
    this.#unary = agentd.inner().unary;
    this.#goals = new Goals(agentd);
  }

  /** create makes a schedule. A repeat with the same id and content makes no second one, other content is CONFLICT. */
  async create(options: ScheduleOptions): Promise<Schedule> {
    const { id, cron, zone, everyMs, at, prompt, ...what } = options;
    const goal = this.#goals.request({ ...what, goal: prompt ?? what.goal ?? "" });
    const { idempotencyKey: _, ...execute } = goal.execute ?? {};
    const timing = given<CreateScheduleRequestJson>({
      id,
      cron: cron === undefined ? undefined : given({ expression: cron, timeZone: zone }),
      every: timeOf("everyMs", everyMs, { most: 31_536_000_000 }),
      ...timesOf({ at }, ["at"]),
    });
    const starts = prompt === undefined ? { goal: { ...goal, execute } } : { execute: { ...execute, userPrompt: prompt } };
    return scheduleOf((await this.#unary("ScheduleService/Create", { ...timing, ...starts })).schedule);
  }

  /** get returns a schedule. One that there is not is NOT_FOUND. */
  async get(id: string): Promise<Schedule> {
    return scheduleOf((await this.#unary("ScheduleService/Get", { id })).schedule);
  }

  /** list yields schedules by their ids, page by page. */
  list(filter: { pageSize?: number | undefined } = {}): AsyncGenerator<Schedule, void, undefined> {
    const request = given({ pageSize: pageSizeOf(filter.pageSize) });
    return pages(async (page) => {
      const { schedules, nextPageToken } = await this.#unary("ScheduleService/List", { ...request, ...page });
      return { items: schedules, nextPageToken };
    }, scheduleOf);
  }

  /** delete ends a schedule. A run that is under way continues, and the session stays. */
  async delete(id: string): Promise<void> {
    await this.#unary("ScheduleService/Delete", { id });
  }
}

function scheduleOf(message: ScheduleJson | undefined): Schedule {
  const m = required(message, "a schedule");
  return {
    id: m.id ?? "",
    cron: m.cron?.expression ?? "",
    zone: m.cron?.timeZone ?? "",
    everyMs: msOf(m.every),
    at: dateOf(m.at),
    sessionId: m.sessionId ?? "",
    createdBy: m.createdBy ?? "",
    createTime: dateOf(m.createTime),
    nextTime: dateOf(m.nextTime),
    lastTime: dateOf(m.lastTime),
    lastTurnId: m.lastTurnId ?? "",
    lastError: m.lastError ?? "",
    runs: numberOf(m.runs),
  };
}
