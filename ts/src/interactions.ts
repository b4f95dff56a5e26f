// Interactions: what turns ask people.
import { pageSizeOf } from "./amounts.js";
import { interactionOf } from "./fromjson.js";
import type { InteractionJson, InteractionKindJson } from "./gen/agentd/v1/interactions_pb.js";
import type { ListInteractionsRequestJson } from "./gen/agentd/v1/sessions_pb.js";
import { enumOf, given, type Word } from "./json.js";
import { resolutionOf } from "./prompts.js";
import { newKey } from "./text.js";
import { interactionStatusesOf } from "./tojson.js";
import type { Interaction, InteractionKind, InteractionStatus, Resolution } from "./types.js";
import { pages, required, type Unary } from "./unary.js";

/** InteractionFilter says which questions to list; what is left out, or empty, narrows nothing. */
export interface InteractionFilter {
  sessionId?: string | undefined;
  turnId?: string | undefined;
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
  statuses?: readonly InteractionStatus[] | undefined;
}

/** Question is what a tool asks a person about its call. */
export interface Question {
  kind: InteractionKind;
  /** At most 65,536 bytes; only an approval may have none. */
  question?: string | undefined;
  /** Answers to suggest; on an approval the scopes that mean something to the tool. */
  choices?: readonly string[] | undefined;
  /** In whose name it asks. */
  source?: string | undefined;
}

/** Interactions looks at questions and answers them for people who watch no run. Each method throws an AgentdError. */
export class Interactions {
  readonly #unary: Unary;

  /** @internal */
  constructor(unary: Unary) {
    this.#unary = unary;
  }

  /** get says how an interaction is. */
  async get(sessionId: string, interactionId: string): Promise<Interaction> {
    const { interaction } = await this.#unary("GetInteraction", { sessionId, interactionId });
    return interactionOf(required(interaction, "an interaction"));
  }

  /** list yields what a session, or all, ask of people, newest first, page by page. */
  list(filter: InteractionFilter = {}): AsyncGenerator<Interaction, void, undefined> {
    const { sessionId, turnId } = filter;
    const statuses = interactionStatusesOf(filter.statuses);
    const pageSize = pageSizeOf(filter.pageSize);
    const request = given<ListInteractionsRequestJson>({ sessionId, turnId, statuses, pageSize });
    return pages(async (page) => {
      const { interactions, nextPageToken } = await this.#unary("ListInteractions", { ...request, ...page });
      return { items: interactions, nextPageToken };
    }, interactionOf);
  }

  /**
   * raise asks a person about a tool call that this client runs, as the n-th question of the call, from 1. The call's
   * time stands still until it is resolved, which the run yields as `interaction_resolved`. A question of a number that
   * was asked before stands, and is returned as it is now: whoever runs the call later gets what was said.
   */
  async raise(sessionId: string, toolCallId: string, n: number, question: Question): Promise<Interaction> {
    const kind = enumOf("INTERACTION_KIND_", question.kind as Word<"INTERACTION_KIND_", InteractionKindJson>);
    const { interaction } = await this.#unary("RaiseInteraction", {
      sessionId,
      toolCallId,
      n,
      interaction: given<InteractionJson>({
        kind,
        question: question.question,
        choices: question.choices && [...question.choices],
        source: question.source,
      }),
    });
    return interactionOf(required(interaction, "an interaction"));
  }

  /**
   * resolve answers for a person. The first resolution stands; a second one is FAILED_PRECONDITION, unless it has the
   * key of the first.
   */
  async resolve(
    sessionId: string,
    interactionId: string,
    resolution: Resolution,
    idempotencyKey: string = newKey(),
  ): Promise<Interaction> {
    const { interaction } = await this.#unary("ResolveInteraction", {
      sessionId,
      interactionId,
      resolution: resolutionOf(resolution, idempotencyKey),
    });
    return interactionOf(required(interaction, "an interaction"));
  }
}
