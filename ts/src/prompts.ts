// Questions of a turn to a person.
import { persist, type ReconnectPolicy } from "./backoff.js";
import { AgentdError, fromThrown } from "./errors.js";
import type { ApprovalScopeJson, ResolutionJson } from "./gen/agentd/v1/interactions_pb.js";
import { enumOf, type JsonObject, type Word } from "./json.js";
import { messageOf, newKey, wellFormed } from "./text.js";
import type { Interaction, Resolution } from "./types.js";
import { follows, orAborted } from "./wait.js";
import type { Wire } from "./wire.js";

/**
 * Prompter asks a person. Its signal is aborted when the question is settled elsewhere, or the run is over; what is
 * returned then is dropped. undefined or null, such as at the end of an input, is no answer: the question stays open
 * for others.
 *
 * What the server cannot take, such as a toolInput that does not fit the tool's schema, is asked again up to 10 times,
 * with the reason in refused. When the prompter has nothing else to say then, the reason is an error event.
 */
export type Prompter = (
  interaction: Interaction,
  signal: AbortSignal,
  refused?: AgentdError,
) => Promise<Resolution | undefined | null> | Resolution | undefined | null;

/**
 * @internal
 * resolutionOf translates a resolution. It throws INVALID_REQUEST for one that decides nothing, or two things, such as
 * `{ approve: false }` and `{ answer: null }`: neither is a yes.
 */
export function resolutionOf(resolution: Resolution, idempotencyKey: string): ResolutionJson {
  const { approve, toolInput, scope, deny, reason, answer } = resolution as {
    approve?: unknown;
    toolInput?: JsonObject;
    scope?: string;
    deny?: unknown;
    reason?: string;
    answer?: unknown;
  };
  const said = [approve, deny, answer].filter((one) => one !== undefined);
  if (said.length === 1 && approve === true) {
    const changed = toolInput === undefined ? {} : { toolInput: wellFormed(JSON.stringify(toolInput)) };
    const held =
      scope === undefined
        ? {}
        : { scope: enumOf("APPROVAL_SCOPE_", scope as Word<"APPROVAL_SCOPE_", ApprovalScopeJson>) };
    return { idempotencyKey, approve: { ...changed, ...held } };
  }
  if (said.length === 1 && deny === true) {
    return { idempotencyKey, deny: { reason: wellFormed(reason ?? "") } };
  }
  if (said.length === 1 && typeof answer === "string") {
    return { idempotencyKey, answer: wellFormed(answer) };
  }
  throw new AgentdError(
    "INVALID_REQUEST",
    "a resolution is one of { approve: true }, { deny: true } and { answer: a text }",
  );
}

/** How many answers of one prompter to one question may be refused. */
const maxRefused = 10;

/** @internal PromptsOptions is what the prompts of a run need. */
export interface PromptsOptions {
  wire: Wire;
  prompter: Prompter;
  headers: Headers;
  reconnect: ReconnectPolicy;
  requestTimeoutMs: number;
  /** Aborted at the end of the run. */
  signal: AbortSignal;
  /** Told of what went wrong without ending the turn. */
  report: (error: AgentdError) => void;
}

/** @internal Prompts asks a person what a turn asks, each question once. */
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
    const { wire, headers, reconnect, requestTimeoutMs } = this.#o;
    const options = { signal, headers, timeoutMs: requestTimeoutMs };
    const named = { sessionId: asked.sessionId, interactionId: asked.id };
    if (replayed) {
      const { interaction } = await persist(reconnect, signal, () => wire.call("GetInteraction", named, options));
      if (interaction?.status !== "INTERACTION_STATUS_PENDING") {
        return;
      }
    }
    let refused: AgentdError | undefined;
    for (let asks = 1; ; asks++) {
      const said = await this.#prompt(asked, signal, refused);
      if (said === undefined || said === null) {
        if (refused !== undefined) {
          throw refused;
        }
        return;
      }
      try {
        const resolution = resolutionOf(said, newKey());
        await persist(reconnect, signal, () => wire.call("ResolveInteraction", { ...named, resolution }, options));
        return;
      } catch (thrown) {
        const failure = fromThrown(thrown);
        if (failure.code === "FAILED_PRECONDITION") {
          return; // somebody else was faster, which the turn tells
        }
        if ((failure.code !== "INVALID_REQUEST" && failure.code !== "LIMIT_EXCEEDED") || asks === maxRefused) {
          throw failure;
        }
        refused = failure;
      }
    }
  }

  /** #prompt calls the prompter, whatever it does. */
  async #prompt(
    asked: Interaction,
    signal: AbortSignal,
    refused: AgentdError | undefined,
  ): Promise<Resolution | undefined | null> {
    try {
      return await orAborted(Promise.resolve(this.#o.prompter(asked, signal, refused)), signal);
    } catch (thrown) {
      const { sessionId, turnId } = asked;
      throw new AgentdError("INTERNAL", `the prompter failed: ${messageOf(thrown)}`, {
        cause: thrown,
        sessionId,
        turnId,
      });
    }
  }
}
