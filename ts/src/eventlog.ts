// The event log of all sessions.
import type { Agentd } from "./agentd.js";
import { countOf } from "./amounts.js";
import type { EventFilterJson, LoggedEventJson } from "./gen/agentd/v1/eventlog_pb.js";
import { dateOf, given, numberOf, type JsonObject } from "./json.js";
import type { Unary } from "./unary.js";
import type { Wire } from "./wire.js";

/** LoggedEvent says who has said something in which session, and not what. */
export interface LoggedEvent {
  readonly seq: number;
  readonly appName: string;
  readonly userId: string;
  readonly sessionId: string;
  readonly id: string;
  readonly branch: string;
  readonly author: string;
  readonly time: Date | undefined;
  readonly turnId: string;
  readonly metadata: JsonObject;
}

/** EventLogFilter selects events; what is left out, or empty, narrows nothing. */
export interface EventLogFilter {
  /** The session, and with tree also those below it. */
  sessionId?: string | undefined;
  tree?: boolean | undefined;
  branchPrefix?: string | undefined;
  author?: string | undefined;
  /** The number of the last event that the caller has. Left out: all for list, and for watch what is to come. */
  afterSeq?: number | undefined;
}

/** How many events list asks for at a time. */
const page = 500;

/** EventLog reads the event log of a server that has one. */
export class EventLog {
  readonly #unary: Unary;
  readonly #wire: Wire;
  readonly #headers: Headers;

  /** Makes the event log of a client's server. */
  constructor(agentd: Agentd) {
    const { unary, wire, headers } = agentd.inner();
    this.#unary = unary;
    this.#wire = wire;
    this.#headers = headers;
  }

  /** list yields the events behind a number, the lowest number first, up to the last one that there is. */
  async *list(filter: EventLogFilter = {}): AsyncGenerator<LoggedEvent, void, undefined> {
    let after = countOf("afterSeq", filter.afterSeq);
    for (let more = true; more; ) {
      const { events = [] } = await this.#unary("EventService/List", {
        ...given({ filter: filterOf(filter), afterSeq: after === 0 ? undefined : String(after) }),
        limit: page,
      });
      yield* events.map(loggedOf);
      after = numberOf(events.at(-1)?.seq ?? String(after));
      more = events.length === page;
    }
  }

  /**
   * watch yields the events behind a number, and those to come, until the loop is left. It has one stream: when that is
   * lost it throws UNAVAILABLE, and another watch goes on behind the last seq.
   */
  async *watch(filter: EventLogFilter = {}, signal?: AbortSignal): AsyncGenerator<LoggedEvent, void, undefined> {
    const { afterSeq } = filter;
    const request = {
      ...given({ filter: filterOf(filter) }),
      ...(afterSeq === undefined ? {} : { afterSeq: String(countOf("afterSeq", afterSeq)) }),
    };
    for await (const { event } of this.#wire.watch("EventService/Watch", request, { headers: this.#headers, signal })) {
      if (event !== undefined) {
        yield loggedOf(event);
      }
    }
  }
}

function filterOf({ sessionId, tree, branchPrefix, author }: EventLogFilter): EventFilterJson {
  return given<EventFilterJson>({ sessionId, tree, branchPrefix, author });
}

function loggedOf(m: LoggedEventJson): LoggedEvent {
  return {
    seq: numberOf(m.seq),
    appName: m.appName ?? "",
    userId: m.userId ?? "",
    sessionId: m.sessionId ?? "",
    id: m.eventId ?? "",
    branch: m.branch ?? "",
    author: m.author ?? "",
    time: dateOf(m.timestamp),
    turnId: m.invocationId ?? "",
    metadata: (m.metadata ?? {}) as JsonObject,
  };
}
