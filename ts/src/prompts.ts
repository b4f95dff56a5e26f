// Questions of a turn to a person.
import { create, type JsonObject } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { persist, type ReconnectPolicy } from "./backoff.js";
import { AgentdError, fromThrown } from "./errors.js";
import { InteractionStatus, ResolutionSchema, type Interaction, type Resolution } from "./gen/agentd/v1/interactions_pb.js";
import type { SessionService } from "./gen/agentd/v1/sessions_pb.js";
import { messageOf, newKey, wellFormed } from "./text.js";
import { follows, orAborted } from "./wait.js";

/** Decision is what a person says to an interaction. */
export type Decision =
  /** Lets a tool be called, with other arguments than the model's if they are given. */
  | { approve: true; toolInput?: JsonObject }
  /** Refuses a tool call, or an answer; the model is told why. */
  | { deny: true; reason?: string }
  /** What the model is told. */
  | { answer: string };

/**
 * Prompter asks a person. Its signal is aborted when the question is settled elsewhere, or the run is over; what is returned then is
 * dropped. undefined or null, such as at the end of an input, is no answer: the question stays open for others.
 */
export type Prompter = (interaction: Interaction, signal: AbortSignal) => Promise<Decision | undefined | null> | Decision | undefined | null;

/**
 * resolutionOf translates a decision. It throws INVALID_REQUEST for one that decides nothing, or two things, such as
 * `{ approve: false }` and `{ answer: null }`: neither is a yes.
 */
export function resolutionOf(decision: Decision, idempotencyKey: string): Resolution {
  const { approve, toolInput, deny, reason, answer } = decision as { approve?: unknown; toolInput?: JsonObject; deny?: unknown; reason?: string; answer?: unknown };
  const said = [approve, deny, answer].filter((one) => one !== undefined);
  if (said.length === 1 && approve === true) {
    const changed = toolInput === undefined ? {} : { toolInput: wellFormed(JSON.stringify(toolInput)) };
    return create(ResolutionSchema, { idempotencyKey, decision: { case: "approve", value: changed } });
  }
  if (said.length === 1 && deny === true) {
    return create(ResolutionSchema, { idempotencyKey, decision: { case: "deny", value: { reason: wellFormed(reason ?? "") } } });
  }
  if (said.length === 1 && typeof answer === "string") {
    return create(ResolutionSchema, { idempotencyKey, decision: { case: "answer", value: wellFormed(answer) } });
  }
  throw new AgentdError("INVALID_REQUEST", "a decision is one of { approve: true }, { deny: true } and { answer: a text }");
}

/** PromptsOptions is what the prompts of a run need. */
export interface PromptsOptions {
  client: Client<typeof SessionService>;
  prompter: Prompter;
  headers: Headers;
  reconnect: ReconnectPolicy;
  requestTimeoutMs: number;
  /** Aborted at the end of the run. */
  signal: AbortSignal;
  /** Told of what went wrong without ending the turn. */
  report: (error: AgentdError) => void;
}

/** Prompts asks a person what a turn asks, each question once. */
export class Prompts {
  readonly #o: PromptsOptions;
  readonly #open = new Map<string, AbortController>(); // by interaction id; settled ones stay for the run

  constructor(options: PromptsOptions) {
    this.#o = options;
  }

  /** start asks; a question out of the past is looked up first, for it may be settled. */
  start(interaction: Interaction, replayed: boolean): void {
    if (this.#open.has(interaction.id) || this.#o.signal.aborted) {
      return;
    }
    const { controller, release } = follows(this.#o.signal);
    this.#open.set(interaction.id, controller);
    void this.#ask(interaction, replayed, controller.signal)
      .catch((thrown: unknown) => {
        if (!controller.signal.aborted) {
          this.#o.report(fromThrown(thrown));
        }
      })
      .finally(release);
  }

  /** settled says that nobody is asked any more. */
  settled(id: string): void {
    this.#open.get(id)?.abort(new AgentdError("UNSPECIFIED", "the question is settled"));
  }

  async #ask(asked: Interaction, replayed: boolean, signal: AbortSignal): Promise<void> {
    const { client, prompter, headers, reconnect, requestTimeoutMs } = this.#o;
    const options = { signal, headers, timeoutMs: requestTimeoutMs };
    const named = { sessionId: asked.sessionId, interactionId: asked.id };
    if (replayed) {
      const { interaction } = await persist(reconnect, signal, () => client.getInteraction(named, options));
      if (interaction?.status !== InteractionStatus.PENDING) {
        return;
      }
    }
    let decision: Decision | undefined | null;
    try {
      decision = await orAborted(Promise.resolve(prompter(asked, signal)), signal);
    } catch (thrown) {
      const { sessionId, turnId } = asked;
      throw new AgentdError("INTERNAL", `the prompter failed: ${messageOf(thrown)}`, { cause: thrown, sessionId, turnId });
    }
    if (decision === undefined || decision === null) {
      return;
    }
    const resolution = resolutionOf(decision, newKey());
    try {
      await persist(reconnect, signal, () => client.resolveInteraction({ ...named, resolution }, options));
    } catch (thrown) {
      const failure = fromThrown(thrown);
      if (failure.code !== "FAILED_PRECONDITION") {
        throw failure; // otherwise somebody else was faster, which the turn tells
      }
    }
  }
}
