// Sessions: conversations of many turns.
import { sessionOf } from "./fromjson.js";
import type {
  CreateSessionRequestJson,
  ForkSessionRequestJson,
  UpdateSessionRequestJson,
} from "./gen/agentd/v1/sessions_pb.js";
import { given } from "./json.js";
import { budgetOf, seqOf, type Budget } from "./options.js";
import { filterOf } from "./tojson.js";
import type { Session, SessionState, TurnStatus } from "./types.js";
import { pages, required, type Unary } from "./unary.js";

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
}

/** UpdateSessionOptions is what to change; what is left out stays. */
export interface UpdateSessionOptions extends SessionFields {
  /** The version that the caller has seen: if there is another one meanwhile, nothing changes, with CONFLICT. */
  version?: number | undefined;
  /** Archives the session, or takes it back. */
  state?: "active" | "archived" | undefined;
  /**
   * Takes the place of the whole budget of the session, larger or smaller; an empty one takes it away. It holds at once:
   * a turn that runs is checked against it from its next model call on.
   */
  budget?: Budget | undefined;
}

/** ForkSessionOptions describes a fork. It has the budget that the session has now. */
export interface ForkSessionOptions extends SessionFields {
  /** A repeat with the same key returns the same fork. */
  idempotencyKey?: string | undefined;
  /** The seq of the last event that the fork is to have; left out: all there is. */
  throughSeq?: number | undefined;
}

/** SessionFilter says which sessions to list; what is left out, or empty, narrows nothing. */
export interface SessionFilter extends SessionFields {
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
  /** Left out: those that are active. */
  states?: readonly SessionState[] | undefined;
  /** How the last turn is. */
  turnStatuses?: readonly TurnStatus[] | undefined;
  /** From then on, and before then. */
  createdSince?: Date | undefined;
  createdBefore?: Date | undefined;
  updatedSince?: Date | undefined;
  updatedBefore?: Date | undefined;
}

/**
 * Sessions makes, finds and removes sessions. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class Sessions {
  readonly #unary: Unary;

  /** @internal */
  constructor(unary: Unary) {
    this.#unary = unary;
  }

  /** create makes a session without turns. */
  async create(options: CreateSessionOptions = {}): Promise<Session> {
    const { labels, clientRef, idempotencyKey, budget } = options;
    const bounds = budget === undefined ? undefined : budgetOf("budget", budget);
    const request = given<CreateSessionRequestJson>({ labels, clientRef, idempotencyKey, budget: bounds });
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
    const { session } = await this.#unary("UpdateSession", {
      ...given<UpdateSessionRequestJson>({ sessionId, labels }),
      ...(version === undefined ? {} : { version: String(version) }),
      ...(clientRef === undefined ? {} : { clientRef }),
      ...(budget === undefined ? {} : { budget: budgetOf("budget", budget) }),
      ...(state === undefined
        ? {}
        : { state: state === "archived" ? "SESSION_STATE_ARCHIVED" : "SESSION_STATE_ACTIVE" }),
    });
    return sessionOf(required(session, "a session"));
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
}
