// Interactions: what turns ask people.
import type { Client } from "@connectrpc/connect";
import { pageSizeOf } from "./amounts.js";
import type { Interaction } from "./gen/agentd/v1/interactions_pb.js";
import type { ListInteractionsRequestSchema, SessionService } from "./gen/agentd/v1/sessions_pb.js";
import { resolutionOf, type Decision } from "./prompts.js";
import { newKey } from "./text.js";
import { pages, required, type Fields, type Unary } from "./unary.js";

/** Interactions looks at questions and answers them for people who watch no run. Each method throws an AgentdError. */
export class Interactions {
  readonly #client: Client<typeof SessionService>;
  readonly #unary: Unary;

  constructor(client: Client<typeof SessionService>, unary: Unary) {
    this.#client = client;
    this.#unary = unary;
  }

  /** get says how an interaction is. */
  async get(sessionId: string, interactionId: string): Promise<Interaction> {
    return required((await this.#unary((o) => this.#client.getInteraction({ sessionId, interactionId }, o))).interaction, "an interaction");
  }

  /** list yields what a session, or all, ask of people, newest first, page by page. */
  list(filter: Fields<typeof ListInteractionsRequestSchema, "pageToken"> = {}): AsyncGenerator<Interaction, void, undefined> {
    const pageSize = pageSizeOf(filter.pageSize);
    return pages(async (pageToken) => {
      const { interactions, nextPageToken } = await this.#unary((o) => this.#client.listInteractions({ ...filter, pageSize, pageToken }, o));
      return { items: interactions, nextPageToken };
    });
  }

  /** resolve answers for a person. The first resolution stands; a second one is FAILED_PRECONDITION, unless it has the key of the first. */
  async resolve(sessionId: string, interactionId: string, decision: Decision, idempotencyKey: string = newKey()): Promise<Interaction> {
    const resolution = resolutionOf(decision, idempotencyKey);
    const { interaction } = await this.#unary((o) => this.#client.resolveInteraction({ sessionId, interactionId, resolution }, o));
    return required(interaction, "an interaction");
  }
}
