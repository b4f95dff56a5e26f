// Turns: what one prompt sets off.
import { countOf, pageSizeOf } from "./amounts.js";
import { eventOf, type Event } from "./events.js";
import { modelCallOf, turnOf } from "./fromjson.js";
import type {
  GetTurnRequestJson,
  ListModelCallsRequestJson,
  ListTurnEventsRequestJson,
  ListTurnsRequestJson,
} from "./gen/agentd/v1/sessions_pb.js";
import { given } from "./json.js";
import { seqOf, visibilityOf } from "./options.js";
import { timesOf, turnStatusesOf } from "./tojson.js";
import type { ModelCallDetails, Turn, TurnStatus, Visibility } from "./types.js";
import { pages, required, type Unary } from "./unary.js";

/** TurnFilter says which turns to list; what is left out, or empty, narrows nothing. */
export interface TurnFilter {
  sessionId?: string | undefined;
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
  statuses?: readonly TurnStatus[] | undefined;
  /** From then on, and before then. */
  createdSince?: Date | undefined;
  createdBefore?: Date | undefined;
}

/** EventsOptions says which events to read. */
export interface EventsOptions {
  /** The turn; left out: the session's last one. */
  turnId?: string | undefined;
  /** The seq of the last event that the caller has. */
  afterSeq?: number | string | undefined;
  /** How many to read with one request at most. */
  pageSize?: number | undefined;
  /** Has each event carry how a user interface may show it. */
  display?: boolean | undefined;
  /** Only events of this visibility. */
  visibility?: Visibility | undefined;
}

/**
 * Turns looks at turns and cancels them. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class Turns {
  readonly #unary: Unary;

  /** @internal */
  constructor(unary: Unary) {
    this.#unary = unary;
  }

  /**
   * get says how a turn is; without turnId, the session's last one. With userParts it gives back the files of the
   * prompt too.
   */
  async get(sessionId: string, turnId = "", options: { userParts?: boolean | undefined } = {}): Promise<Turn> {
    const request = given<GetTurnRequestJson>({ sessionId, turnId, userParts: options.userParts });
    return turnOf(required((await this.#unary("GetTurn", request)).turn, "a turn"));
  }

  /** list yields turns, newest first, page by page. */
  list(filter: TurnFilter = {}): AsyncGenerator<Turn, void, undefined> {
    const request = given<ListTurnsRequestJson>({
      sessionId: filter.sessionId,
      statuses: turnStatusesOf(filter.statuses),
      pageSize: pageSizeOf(filter.pageSize),
      ...timesOf(filter, ["createdSince", "createdBefore"]),
    });
    return pages(async (page) => {
      const { turns, nextPageToken } = await this.#unary("ListTurns", { ...request, ...page });
      return { items: turns, nextPageToken };
    }, turnOf);
  }

  /**
   * cancel cancels a turn and returns when nothing of it runs any more. One that is over stays as it is. Without turnId
   * it is the session's last one as of now, which is read first.
   */
  async cancel(sessionId: string, turnId = "", reason = ""): Promise<Turn> {
    turnId ||= (await this.get(sessionId)).id;
    return turnOf(required((await this.#unary("CancelTurn", given({ sessionId, turnId, reason }))).turn, "a turn"));
  }

  /**
   * cancelToolCall cancels one tool call: the model sees a cancelled tool, and the turn goes on. A call that has its
   * result stays as it is, and so does a turn that is over. Without turnId it is a call of the session's last turn as
   * of now, which is read first.
   */
  async cancelToolCall(sessionId: string, toolCallId: string, turnId = ""): Promise<Turn> {
    turnId ||= (await this.get(sessionId)).id;
    return turnOf(required((await this.#unary("CancelToolCall", { sessionId, turnId, toolCallId })).turn, "a turn"));
  }

  /**
   * modelCalls says what the models of a turn were told, call by call, page by page; without turnId, of the session's
   * last one. pageSize is that of one page.
   */
  async modelCalls(sessionId: string, turnId = "", pageSize?: number): Promise<ModelCallDetails[]> {
    const request = given<ListModelCallsRequestJson>({ sessionId, turnId, pageSize: pageSizeOf(pageSize) });
    const all: ModelCallDetails[] = [];
    const calls = pages(async (page) => {
      const { calls, nextPageToken } = await this.#unary("ListModelCalls", { ...request, ...page });
      return { items: calls, nextPageToken };
    }, modelCallOf);
    for await (const call of calls) {
      all.push(call);
    }
    return all;
  }

  /**
   * events yields what has happened in a turn so far, after a position; without turnId, in the session's last one.
   * Unlike a Run it yields the error of a turn that failed as an event.
   */
  async *events(sessionId: string, options: EventsOptions = {}): AsyncGenerator<Event, void, undefined> {
    const { turnId, afterSeq, display, visibility } = options;
    let request: ListTurnEventsRequestJson = {
      ...given<ListTurnEventsRequestJson>({
        sessionId,
        turnId,
        pageSize: countOf("pageSize", options.pageSize),
        display,
        visibility: visibilityOf(visibility),
      }),
      ...(afterSeq === undefined ? {} : { afterSeq: seqOf(afterSeq) }),
    };
    for (;;) {
      const { events = [], more = false, nextAfterSeq } = await this.#unary("ListTurnEvents", request);
      for (const message of events) {
        const event = eventOf(message);
        if (event !== undefined) {
          yield event;
        }
      }
      const last = events.at(-1);
      if (!more || last === undefined || nextAfterSeq === undefined) {
        return;
      }
      request = { ...request, turnId: request.turnId || (last.turnId ?? ""), afterSeq: nextAfterSeq };
    }
  }
}
