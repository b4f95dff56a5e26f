// Sessions: conversations of many turns.
import type { Client } from "@connectrpc/connect";
import { pageSizeOf } from "./amounts.js";
import type {
  CreateSessionRequestSchema,
  ForkSessionRequestSchema,
  ListSessionsRequestSchema,
  Session,
  SessionService,
  UpdateSessionRequestSchema,
} from "./gen/agentd/v1/sessions_pb.js";
import { pages, required, type Fields, type Unary } from "./unary.js";

/** Sessions makes, finds and removes sessions. Each method makes one request and throws an AgentdError. */
export class Sessions {
  readonly #client: Client<typeof SessionService>;
  readonly #unary: Unary;

  constructor(client: Client<typeof SessionService>, unary: Unary) {
    this.#client = client;
    this.#unary = unary;
  }

  /** create makes a session without turns. A repeat with the same idempotencyKey returns the same session. */
  async create(request: Fields<typeof CreateSessionRequestSchema> = {}): Promise<Session> {
    return required((await this.#unary((o) => this.#client.createSession(request, o))).session, "a session");
  }

  /** get says what is known of a session. */
  async get(sessionId: string): Promise<Session> {
    return required((await this.#unary((o) => this.#client.getSession({ sessionId }, o))).session, "a session");
  }

  /** list yields sessions, newest first, page by page; pageSize is that of one page. */
  list(filter: Fields<typeof ListSessionsRequestSchema, "pageToken"> = {}): AsyncGenerator<Session, void, undefined> {
    const pageSize = pageSizeOf(filter.pageSize);
    return pages(async (pageToken) => {
      const { sessions, nextPageToken } = await this.#unary((o) => this.#client.listSessions({ ...filter, pageSize, pageToken }, o));
      return { items: sessions, nextPageToken };
    });
  }

  /** update changes what a session is called, or archives it; what is left out stays. */
  async update(sessionId: string, change: Fields<typeof UpdateSessionRequestSchema, "sessionId">): Promise<Session> {
    return required((await this.#unary((o) => this.#client.updateSession({ ...change, sessionId }, o))).session, "a session");
  }

  /** delete cancels what runs in a session and removes it for good. */
  async delete(sessionId: string): Promise<void> {
    await this.#unary((o) => this.#client.deleteSession({ sessionId }, o));
  }

  /** fork makes a session that begins with what another one had up to a position; seq left out is all there is. */
  async fork(sessionId: string, options: Fields<typeof ForkSessionRequestSchema, "sessionId"> = {}): Promise<Session> {
    return required((await this.#unary((o) => this.#client.forkSession({ ...options, sessionId }, o))).session, "a session");
  }
}
