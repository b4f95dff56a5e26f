/**
 * The way from `useChat` of the AI SDK (ai 6) to agentd: `@apzuk3/agentd/ai`. It takes types alone from the package ai.
 *
 * @module
 */
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import type { Agentd } from "./agentd.js";
import { Chunks } from "./chunks.js";
import { AgentdError, fromThrown } from "./errors.js";
import type { Event } from "./events.js";
import { bytesOf } from "./json.js";
import type { RunOptions } from "./options.js";
import type { Part } from "./parts.js";
import type { Run } from "./run.js";
import type { Agent } from "./tree.js";
import type { Resolution } from "./types.js";

/** AgentdChatTransportOptions says what turns are made of. */
export interface AgentdChatTransportOptions {
  agentd: Agentd;
  /** The tree for the turns; may be left out for a session that has run before. */
  agent?: Agent | undefined;
  /** What else holds for each turn. */
  run?:
    | Omit<RunOptions, "agent" | "sessionId" | "create" | "prompt" | "parts" | "signal" | "onLeave" | "prompter">
    | undefined;
  /** The session of a chat. Default: the one with the chat's id, which the first turn makes. */
  sessionId?: ((chatId: string) => string) | undefined;
}

/** How many turns may wait for people with a connection of their own. */
const maxWaiting = 2;

/** Followed is a turn that is followed, or waits for a person. */
interface Followed {
  run: Run;
  events: AsyncIterator<Event, void, undefined>;
  chunks: Chunks;
}

/**
 * AgentdChatTransport is a ChatTransport: each message of the user starts a turn in the chat's session, whose tools run
 * in the page. The response is one message: text and reasoning (whose `providerMetadata.agentd` says which agent speaks),
 * tools, sources, and metadata with `sessionId`, `turnId`, `completed`, `usage` and `structuredOutput`. Text that the
 * server takes back cannot be taken out of a message: its part is marked, see {@link isRetracted}.
 *
 * A call that needs approval ends the response, as with any other transport; what the user says continues it when the
 * chat sends automatically (`sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses`). A question
 * of an agent is a part of the type `data-interaction`, which {@link AgentdChatTransport.resolve} resolves while the
 * response continues. `stop` cancels the turn; a page that is closed leaves it, and `resume: true` goes on with it. The
 * history is the session's: regenerating a response and editing a message are refused (INVALID_REQUEST), a fork of the
 * session is the way.
 */
export class AgentdChatTransport<M extends UIMessage = UIMessage> implements ChatTransport<M> {
  /** A reconnect tells the turn from its beginning. */
  readonly resumeStreamIsReplay = true;
  readonly #o: AgentdChatTransportOptions;
  readonly #waiting = new Map<string, Followed>(); // by chat: turns that wait for a person; at most one each

  constructor(options: AgentdChatTransportOptions) {
    this.#o = options;
  }

  /** sendMessages starts a turn, or goes on with one that waits for approval. */
  readonly sendMessages = async (
    options: Parameters<ChatTransport<M>["sendMessages"]>[0],
  ): Promise<ReadableStream<UIMessageChunk>> => {
    const { trigger, chatId, messages, abortSignal } = options;
    const last = messages.at(-1);
    if (last?.role === "assistant" && trigger === "submit-message") {
      return this.#goOn(chatId, last, abortSignal);
    }
    const edited =
      options.messageId !== undefined && messages.findIndex(({ id }) => id === options.messageId) < messages.length - 1;
    if (trigger !== "submit-message" || last?.role !== "user" || edited) {
      throw new AgentdError(
        "INVALID_REQUEST",
        `${trigger}: a session keeps what was said; fork it to say something else`,
      );
    }
    this.#forget(chatId);
    const { agentd, agent, run: more } = this.#o;
    const { prompt, parts } = promptOf(last);
    const headers = { ...headersOf(more?.headers), ...headersOf(options.headers) };
    const sessionId = this.#sessionOf(chatId);
    const run = agentd.run({
      ...more,
      agent,
      sessionId,
      create: true,
      prompt,
      parts,
      headers,
      onLeave: "detach",
      prompter: null,
    });
    return this.#stream(chatId, followed(run), abortSignal);
  };

  /** reconnectToStream goes on with the turn that runs in the chat's session, from its beginning; null if none does. */
  readonly reconnectToStream = async (
    options: Parameters<ChatTransport<M>["reconnectToStream"]>[0],
  ): Promise<ReadableStream<UIMessageChunk> | null> => {
    const { chatId, abortSignal } = options;
    const { agentd } = this.#o;
    const sessionId = this.#sessionOf(chatId);
    try {
      const { id: turnId, status } = await agentd.turns.get(sessionId);
      if (status === "succeeded" || status === "failed" || status === "canceled") {
        return null;
      }
      this.#forget(chatId);
      const run = agentd.attach(sessionId, {
        turnId,
        headers: { ...headersOf(this.#o.run?.headers), ...headersOf(options.headers) },
      });
      return this.#stream(chatId, followed(run), abortSignal);
    } catch (thrown) {
      const err = fromThrown(thrown);
      if (err.code === "SESSION_NOT_FOUND" || err.code === "NOT_FOUND") {
        return null; // nothing was said yet
      }
      throw err;
    }
  };

  /** resolve answers what a person is asked in a chat. It throws FAILED_PRECONDITION if somebody else was faster. */
  async resolve(chatId: string, interactionId: string, resolution: Resolution): Promise<void> {
    await this.#o.agentd.interactions.resolve(this.#sessionOf(chatId), interactionId, resolution);
  }

  #sessionOf(chatId: string): string {
    return this.#o.sessionId?.(chatId) ?? chatId;
  }

  /** goOn tells the server what a person says to approvals, and continues the response that has waited for it. */
  async #goOn(
    chatId: string,
    message: M,
    abortSignal: AbortSignal | undefined,
  ): Promise<ReadableStream<UIMessageChunk>> {
    const waiting = this.#waiting.get(chatId) ?? (await this.#reread(chatId));
    for (const { approval } of approvalsOf(message)) {
      if (approval !== undefined && waiting.chunks.approvals.delete(approval.id)) {
        const { approved, reason } = approval;
        const resolution: Resolution = approved
          ? { approve: true }
          : { deny: true, ...(reason === undefined ? {} : { reason }) };
        await this.resolve(chatId, approval.id, resolution).catch((thrown: unknown) => {
          if (fromThrown(thrown).code !== "FAILED_PRECONDITION") {
            waiting.chunks.approvals.set(approval.id, {} as never);
            throw thrown;
          } // otherwise somebody else was faster, which the turn tells
        });
      }
    }
    this.#waiting.delete(chatId);
    return this.#stream(chatId, waiting, abortSignal);
  }

  /**
   * reread follows the last turn of a chat's session up to where it waits: what it has told until then, the message
   * has.
   */
  async #reread(chatId: string): Promise<Followed> {
    const turn = followed(this.#o.agentd.attach(this.#sessionOf(chatId), { headers: headersOf(this.#o.run?.headers) }));
    while (!turn.chunks.waits) {
      const next = await turn.events.next();
      if (next.done === true) {
        break; // nobody is asked any more
      }
      turn.chunks.of(next.value);
    }
    return turn;
  }

  /**
   * keep has a turn wait, with its connection, of which browsers have few: the oldest one is left beyond the bound, and
   * read again.
   */
  #keep(chatId: string, turn: Followed): void {
    this.#waiting.set(chatId, turn);
    const [oldest] = this.#waiting.keys();
    if (this.#waiting.size > maxWaiting && oldest !== undefined) {
      this.#forget(oldest);
    }
  }

  /** forget leaves a turn that waits. */
  #forget(chatId: string): void {
    void this.#waiting.get(chatId)?.events.return?.();
    this.#waiting.delete(chatId);
  }

  #stream(chatId: string, turn: Followed, abortSignal: AbortSignal | undefined): ReadableStream<UIMessageChunk> {
    const { run, events, chunks } = turn;
    let over = false;
    const stop = () => {
      over = true;
      void run
        .cancel("stopped by the user")
        .catch(() => {})
        .finally(() => events.return?.());
    };
    const finish = (controller: ReadableStreamDefaultController<UIMessageChunk>) => {
      over = true;
      abortSignal?.removeEventListener("abort", stop);
      controller.close();
    };
    return new ReadableStream<UIMessageChunk>({
      start: (controller) => {
        abortSignal?.addEventListener(
          "abort",
          () => {
            if (!over) {
              stop();
              controller.close();
            }
          },
          { once: true },
        );
      },
      pull: async (controller) => {
        for (let told = false; !told && !over;) {
          try {
            const next = await events.next();
            if (over) {
              return;
            }
            if (next.done === true) {
              return finish(controller);
            }
            for (const chunk of chunks.of(next.value)) {
              controller.enqueue(chunk);
              told = true;
            }
          } catch (thrown) {
            if (!over) {
              controller.enqueue({ type: "error", errorText: fromThrown(thrown).message });
              finish(controller);
            }
            return;
          }
          if (chunks.waits) {
            this.#keep(chatId, turn);
            controller.enqueue({ type: "finish", finishReason: "tool-calls" });
            return finish(controller);
          }
        }
      },
      cancel: () => {
        over = true;
        void events.return?.();
      },
    });
  }
}

/** isRetracted tells whether a part of a message is void: its text was taken back, and what is in its place follows. */
export function isRetracted(part: UIMessage["parts"][number]): boolean {
  return "providerMetadata" in part && part.providerMetadata?.["agentd"]?.["retracted"] === true;
}

function followed(run: Run): Followed {
  return { run, events: run[Symbol.asyncIterator](), chunks: new Chunks() };
}

/** promptOf is what a user's message says. Files are taken from data URLs, or fetched by the model's provider. */
function promptOf({ parts }: UIMessage): { prompt: string; parts: Part[] } {
  const texts: string[] = [];
  const files: Part[] = [];
  for (const part of parts) {
    if (part.type === "text") {
      texts.push(part.text);
    } else if (part.type === "file") {
      const inline = /^data:[^,]*;base64,(.*)$/s.exec(part.url);
      files.push(
        inline === null
          ? { mimeType: part.mediaType, uri: part.url }
          : { mimeType: part.mediaType, data: bytesOf(inline[1]) },
      );
    }
  }
  return { prompt: texts.join("\n"), parts: files };
}

/** approvalsOf are the parts of a message to which a person has said yes or no. */
function approvalsOf({
  parts,
}: UIMessage): { approval?: { id: string; approved: boolean; reason?: string | undefined } }[] {
  return parts.flatMap((part) =>
    "state" in part && part.state === "approval-responded" ? [{ approval: part.approval }] : [],
  );
}

function headersOf(headers: HeadersInit | undefined): Record<string, string> {
  return Object.fromEntries(new Headers(headers));
}
