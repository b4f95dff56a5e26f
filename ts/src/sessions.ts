// Sessions: conversations of many turns.
import { refJson, type AgentRef } from "./agents.js";
import { countOf, hourMs, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { eventOf, ownEvent, type Event } from "./events.js";
import { followWhole, type Followed, type StreamsOptions } from "./follow.js";
import { sessionOf } from "./fromjson.js";
import type {
  CreateSessionRequestJson,
  CreateSessionTokenRequestJson,
  ForkSessionRequestJson,
  ListSessionEventsRequestJson,
  CompactSessionRequestJson,
  UpdateSessionRequestJson,
} from "./gen/agentd/v1/sessions_pb.js";
import { dateOf, given } from "./json.js";
import { budgetOf, headersOf, seqOf, visibilityOf, type Budget } from "./options.js";
import { filterOf } from "./tojson.js";
import type { Session, SessionState, TurnStatus, Visibility } from "./types.js";
import { pages, required, type Unary } from "./unary.js";
import { follows } from "./wait.js";

/** SessionFields is how a caller finds a session. */
export interface SessionFields {
  /** Names and values; a list of sessions may be narrowed to those that have them. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** What the caller calls the session. */
  clientRef?: string | undefined;
}

/** CreateSessionOptions describes a new session. */
export interface CreateSessionOptions extends SessionFields {
  /** A repeat with the same key returns the same session. */
  idempotencyKey?: string | undefined;
  /**
   * What the session may spend from its beginning, all of its turns together. The sessionBudget of a run only tightens
   * it, for its turn; update changes it.
   */
  budget?: Budget | undefined;
  /**
   * Has the arguments and the results of tools removed from the session's log with the end of their turn: later turns,
   * and readers, find the calls without them.
   */
  dropToolPayloads?: boolean | undefined;
  /**
   * The id of the session; left out: the server makes one. A repeat with the same id and content returns the same session.
   * Not with idempotencyKey.
   */
  id?: string | undefined;
  /** An object of the caller's own, which the server keeps and does not read: at most 16,384 bytes as JSON. */
  metadata?: Readonly<Record<string, unknown>> | undefined;
  /**
   * The agent that runs in turns that bring none, until one has: one that the server keeps, in the version that it has now.
   */
  agentRef?: AgentRef | undefined;
}

/** UpdateSessionOptions is what to change; what is left out stays. */
export interface UpdateSessionOptions extends SessionFields {
  /** The version that the caller has seen: if there is another one meanwhile, nothing changes, with CONFLICT. */
  version?: number | undefined;
  /** Archives the session, or takes it back. */
  state?: "active" | "archived" | undefined;
  /**
   * Takes the place of the whole budget of the session, larger or smaller; an empty one takes it away. It holds at
   * once: a turn that runs is checked against it from its next model call on.
   */
  budget?: Budget | undefined;
  /** Takes the place of the session's whole metadata; an empty object takes it away. */
  metadata?: Readonly<Record<string, unknown>> | undefined;
}

/** ForkSessionOptions describes a fork. It has the budget that the session has now. */
export interface ForkSessionOptions extends SessionFields {
  /** A repeat with the same key returns the same fork. */
  idempotencyKey?: string | undefined;
  /** The seq of the last event that the fork is to have; left out: all there is. */
  throughSeq?: number | undefined;
}

/** CreateTokenOptions says what the holder of a token for one session may do. */
export interface CreateTokenOptions {
  /** The tools that the holder may have; left out: none. */
  tools?: readonly string[] | undefined;
  /**
   * How long the token is valid, in milliseconds, at most an hour; left out, or 0: 10 minutes. It ends earlier if the
   * credential of this client does.
   */
  lifetimeMs?: number | undefined;
  /** The holder only watches. */
  observe?: boolean | undefined;
  /** The holder's turns may have an agent; else they run with the tree of the session. */
  agents?: boolean | undefined;
}

/** SessionToken is a token for one session. */
export interface SessionToken {
  /** What its holder gives a client as token. The server does not keep it. */
  readonly token: string;
  /** When it ends. */
  readonly expireTime: Date;
}

/** SessionFilter says which sessions to list; what is left out, or empty, narrows nothing. */
export interface SessionFilter extends SessionFields {
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
  states?: readonly SessionState[] | undefined;
  /** How the last turn is. */
  turnStatuses?: readonly TurnStatus[] | undefined;
  /** From then on, and before then. */
  createdSince?: Date | undefined;
  createdBefore?: Date | undefined;
  updatedSince?: Date | undefined;
  updatedBefore?: Date | undefined;
}

/** SessionEventsOptions says which events of a session to read. */
export interface SessionEventsOptions {
  /** The cursor of the last event that the caller has; left out: the session from its beginning. */
  cursor?: string | undefined;
  /** Has each event carry how a user interface may show it. */
  display?: boolean | undefined;
  /** Only events of this visibility, and what no client can do without: ends, errors, retracts. */
  visibility?: Visibility | undefined;
}

/** WatchSessionOptions says how a session is followed. */
export interface WatchSessionOptions extends SessionEventsOptions {
  /** Ends the iteration with its reason. */
  signal?: AbortSignal | undefined;
  /** Sent with each request, on top of the client's. */
  headers?: HeadersInit | undefined;
}

/**
 * SessionEvent is an event, of whichever turn, and the cursor with which to go on behind it. What has no place of its
 * own, such as the first pieces of a text that comes in several, and what this client tells of its connection, has the
 * cursor of what came before. A cursor is text of the server's own, good for as long as the session's log is kept.
 */
export type SessionEvent = Event & { readonly cursor: string };

/**
 * Sessions makes, finds and removes sessions. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class Sessions {
  readonly #unary: Unary;

  readonly #streams: StreamsOptions;

  /** @internal */
  constructor(unary: Unary, streams: StreamsOptions) {
    this.#unary = unary;
    this.#streams = streams;
  }

  /** create makes a session without turns. */
  async create(options: CreateSessionOptions = {}): Promise<Session> {
    const { labels, clientRef, idempotencyKey, budget, dropToolPayloads, id: sessionId } = options;
    const bounds = budget === undefined ? undefined : budgetOf("budget", budget);
    const metadata = options.metadata as CreateSessionRequestJson["metadata"];
    const request = given<CreateSessionRequestJson>({
      labels, clientRef, idempotencyKey, budget: bounds, dropToolPayloads, sessionId, metadata,
      agentRef: options.agentRef === undefined ? undefined : refJson(options.agentRef),
    });
    const { session } = await this.#unary("CreateSession", request);
    return sessionOf(required(session, "a session"));
  }

  /** get says what is known of a session. */
  async get(sessionId: string): Promise<Session> {
    return sessionOf(required((await this.#unary("GetSession", { sessionId })).session, "a session"));
  }

  /** list yields sessions, newest first, page by page. */
  list(filter: SessionFilter = {}): AsyncGenerator<Session, void, undefined> {
    const request = filterOf(filter);
    return pages(async (page) => {
      const { sessions, nextPageToken } = await this.#unary("ListSessions", { ...request, ...page });
      return { items: sessions, nextPageToken };
    }, sessionOf);
  }

  /** update changes what a session is called and may spend, or archives it. */
  async update(sessionId: string, options: UpdateSessionOptions): Promise<Session> {
    const { version, labels, clientRef, state, budget } = options;
    const metadata = options.metadata as UpdateSessionRequestJson["metadata"];
    const { session } = await this.#unary("UpdateSession", {
      ...given<UpdateSessionRequestJson>({ sessionId, labels }),
      ...(version === undefined ? {} : { version: String(version) }),
      ...(clientRef === undefined ? {} : { clientRef }),
      ...(metadata === undefined ? {} : { metadata }),
      ...(budget === undefined ? {} : { budget: budgetOf("budget", budget) }),
      ...(state === undefined
        ? {}
        : { state: state === "archived" ? "SESSION_STATE_ARCHIVED" : "SESSION_STATE_ACTIVE" }),
    });
    return sessionOf(required(session, "a session"));
  }

  /**
   * compact asks that a summary replaces what the models have read so far: each agent writes its own before its next
   * model call. focus is what the summaries are to keep. It returns the seq behind which they come.
   */
  async compact(sessionId: string, focus?: string): Promise<number> {
    const { seq } = await this.#unary("CompactSession", given<CompactSessionRequestJson>({ sessionId, focus }));
    return Number(seq ?? 0);
  }

  /** delete cancels what runs in a session and removes it for good. */
  async delete(sessionId: string): Promise<void> {
    await this.#unary("DeleteSession", { sessionId });
  }

  /** fork makes a session that begins with what another one had up to a position. */
  async fork(sessionId: string, options: ForkSessionOptions = {}): Promise<Session> {
    const { throughSeq, labels, clientRef, idempotencyKey } = options;
    const through = throughSeq === undefined ? {} : { throughSeq: seqOf(throughSeq, "throughSeq") };
    const request = given<ForkSessionRequestJson>({ sessionId, labels, clientRef, idempotencyKey });
    const { session } = await this.#unary("ForkSession", { ...request, ...through });
    return sessionOf(required(session, "a session"));
  }

  /**
   * createToken makes a token for one session, which a server hands to a page in place of its own key: to its holder no
   * other session exists. The token ends with the key of this client.
   */
  async createToken(sessionId: string, options: CreateTokenOptions = {}): Promise<SessionToken> {
    const { tools = [], observe, agents } = options;
    const lifetime = timeOf("lifetimeMs", options.lifetimeMs, { most: hourMs });
    const toolNames = [...tools];
    const request = given<CreateSessionTokenRequestJson>({ sessionId, toolNames, lifetime, observe, agents });
    const { token, expireTime } = await this.#unary("CreateSessionToken", request);
    return { token: required(token, "a token"), expireTime: required(dateOf(expireTime), "the end of the token") };
  }

  /**
   * events yields what has happened in a session so far, in all of its turns, page by page. The error of a turn that
   * has failed is an event, and its end follows.
   */
  async *events(
    sessionId: string,
    options: SessionEventsOptions & { pageSize?: number | undefined } = {},
  ): AsyncGenerator<SessionEvent, void, undefined> {
    const { cursor, display, visibility } = options;
    let request = given<ListSessionEventsRequestJson>({
      sessionId,
      cursor,
      pageSize: countOf("pageSize", options.pageSize),
      display,
      visibility: visibilityOf(visibility),
    });
    for (;;) {
      const { events = [], nextCursor = "", more = false } = await this.#unary("ListSessionEvents", request);
      for (const { event: message, cursor = "" } of events) {
        const event = eventOf(message ?? {});
        if (event !== undefined) {
          yield { ...event, cursor };
        }
      }
      if (!more || nextCursor === "") {
        return;
      }
      request = { ...request, cursor: nextCursor };
    }
  }

  /**
   * watch follows a session: what events yields, then what happens from now on, of whichever turn and whoever has
   * started it. It takes no part: it wakes no turn and is asked for nothing. It has no end; who leaves the loop ends
   * it. A connection that is lost is replaced, and no event is lost, nor comes twice. It throws an AgentdError when the
   * session cannot be followed any further, such as SESSION_NOT_FOUND for one that was deleted, and the reason of a
   * signal that was aborted.
   */
  watch(sessionId: string, options: WatchSessionOptions = {}): AsyncIterableIterator<SessionEvent, void, undefined> {
    const { controller, release } = follows(options.signal);
    const left = new AgentdError("UNSPECIFIED", "the session is no longer watched");
    const over = { done: true, value: undefined } as const;
    const followed = followWhole({
      ...this.#streams,
      sessionId,
      cursor: options.cursor ?? "",
      display: options.display ?? false,
      visibility: visibilityOf(options.visibility),
      headers: headersOf(this.#streams.headers, options.headers),
      signal: controller.signal,
    });
    const events = told(followed);
    const close = () => {
      release();
      controller.abort(left);
    };
    return {
      next: async () => {
        try {
          return await events.next();
        } catch (thrown) {
          close();
          if (thrown === left) {
            return over; // return was called meanwhile
          }
          throw thrown;
        }
      },
      return: async () => {
        close();
        await events.return().catch(() => {});
        return over;
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }
}

async function* told(followed: AsyncIterable<Followed>): AsyncGenerator<SessionEvent, void, undefined> {
  for await (const { cursor, ...of } of followed) {
    const event = "connection" in of ? ownEvent("", of.connection) : eventOf(of.message);
    if (event !== undefined) {
      yield { ...event, cursor };
    }
  }
}
