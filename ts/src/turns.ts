// Turns: what one prompt sets off.
import type { Client } from "@connectrpc/connect";
import { countOf, pageSizeOf } from "./amounts.js";
import { eventOf, type Event } from "./events.js";
import type { ListTurnsRequestSchema, ModelCallDetails, SessionService, Turn } from "./gen/agentd/v1/sessions_pb.js";
import { visibilityOf, type Visibility } from "./options.js";
import { pages, required, type Fields, type Unary } from "./unary.js";

/** EventsOptions says which events to read. */
export interface EventsOptions {
  /** The turn; left out: the session's last one. */
  turnId?: string;
  /** The seq of the last event that the caller has. */
  afterSeq?: bigint;
  /** How many to read with one request at most. */
  limit?: number;
  /** Has each event carry how a user interface may show it. */
  display?: boolean;
  /** Only events of this visibility. */
  visibility?: Visibility;
}

/** Turns looks at turns and cancels them. Each method makes one request, a list one for each page, and throws an AgentdError. */
export class Turns {
  readonly #client: Client<typeof SessionService>;
  readonly #unary: Unary;

  constructor(client: Client<typeof SessionService>, unary: Unary) {
    this.#client = client;
    this.#unary = unary;
  }

  /** get says how a turn is; without turnId, the session's last one. With parts it gives back the files of the prompt too. */
  async get(sessionId: string, turnId = "", options: { parts?: boolean } = {}): Promise<Turn> {
    const { parts = false } = options;
    return required((await this.#unary((o) => this.#client.getTurn({ sessionId, turnId, parts }, o))).turn, "a turn");
  }

  /** list yields turns, newest first, page by page; pageSize is that of one page. */
  list(filter: Fields<typeof ListTurnsRequestSchema, "pageToken"> = {}): AsyncGenerator<Turn, void, undefined> {
    const pageSize = pageSizeOf(filter.pageSize);
    return pages(async (pageToken) => {
      const { turns, nextPageToken } = await this.#unary((o) => this.#client.listTurns({ ...filter, pageSize, pageToken }, o));
      return { items: turns, nextPageToken };
    });
  }

  /**
   * cancel cancels a turn and returns when nothing of it runs any more. One that is over stays as it is. Without turnId it is the
   * session's last one as of now, which is read first.
   */
  async cancel(sessionId: string, turnId = "", reason = ""): Promise<Turn> {
    turnId ||= (await this.get(sessionId)).id;
    return required((await this.#unary((o) => this.#client.cancelTurn({ sessionId, turnId, reason }, o))).turn, "a turn");
  }

  /**
   * cancelToolCall cancels one tool call: the model sees a cancelled tool, and the turn goes on. A call that has its result stays as it
   * is, and so does a turn that is over. Without turnId it is a call of the session's last turn as of now, which is read first.
   */
  async cancelToolCall(sessionId: string, toolCallId: string, turnId = ""): Promise<Turn> {
    turnId ||= (await this.get(sessionId)).id;
    return required((await this.#unary((o) => this.#client.cancelToolCall({ sessionId, turnId, toolCallId }, o))).turn, "a turn");
  }

  /**
   * modelCalls says what the models of a turn were told, call by call, page by page; without turnId, of the session's last one.
   * pageSize is that of one page.
   */
  async modelCalls(sessionId: string, turnId = "", pageSize?: number): Promise<ModelCallDetails[]> {
    const size = pageSizeOf(pageSize);
    const all: ModelCallDetails[] = [];
    const calls = pages(async (pageToken) => {
      const { calls, nextPageToken } = await this.#unary((o) => this.#client.listModelCalls({ sessionId, turnId, pageSize: size, pageToken }, o));
      return { items: calls, nextPageToken };
    });
    for await (const call of calls) {
      all.push(call);
    }
    return all;
  }

  /**
   * events yields what has happened in a turn so far, after a position; without turnId, in the session's last one. Unlike a Run
   * it yields the error of a turn that failed as an event.
   */
  async *events(sessionId: string, options: EventsOptions = {}): AsyncGenerator<Event, void, undefined> {
    const limit = countOf("limit", options.limit);
    let request = { ...options, limit, visibility: visibilityOf(options.visibility), sessionId };
    for (;;) {
      const { events, more } = await this.#unary((o) => this.#client.listTurnEvents(request, o));
      for (const message of events) {
        const event = eventOf(message);
        if (event !== undefined) {
          yield event;
        }
      }
      const last = events.at(-1);
      if (!more || last === undefined) {
        return;
      }
      request = { ...request, turnId: request.turnId ?? last.turnId, afterSeq: last.seq };
    }
  }
}
