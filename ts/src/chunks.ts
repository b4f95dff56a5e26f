// The events of a turn as the pieces of a message of the AI SDK.
import type { FinishReason, ProviderMetadata, UIMessageChunk } from "ai";
import type { Event, ToolCall } from "./events.js";
import type { Interaction } from "./types.js";

/** Chunks translates the events of one turn. */
export class Chunks {
  /** Approvals that are asked for and not given, by id. */
  readonly approvals = new Map<string, Interaction>();
  readonly #running = new Set<string>(); // calls without a result
  readonly #told = new Set<string>(); // calls that the message has
  readonly #pieces = new Map<string, ProviderMetadata>(); // parts that are open, by their ids
  #sources = 0;
  #started = false;
  #stop: FinishReason = "stop";

  /** waits tells whether nothing happens until a person approves of a call. */
  get waits(): boolean {
    return this.approvals.size > 0 && this.#running.size === 0;
  }

  /** of returns what an event is. */
  of(event: Event): UIMessageChunk[] {
    switch (event.type) {
      case "turn_started":
        if (this.#started) {
          return [];
        }
        this.#started = true;
        return [
          {
            type: "start",
            messageId: event.turnId,
            messageMetadata: { sessionId: event.sessionId, turnId: event.turnId },
          },
        ];
      case "output_chunk":
        return this.#piece(event);
      case "message_retracted":
        return this.#close((id) => event.messageId === "" || id.endsWith(` ${event.messageId}`), true);
      case "message_completed":
        return this.#close((id) => id.endsWith(` ${event.messageId}`));
      case "tool_call":
      case "tool_call_announced":
        this.#running.add(event.toolCallId);
        return this.#call(event);
      case "tool_call_canceled":
        return this.#answered(event.toolCallId, {
          type: "tool-output-error",
          toolCallId: event.toolCallId,
          errorText: event.reason || "canceled",
        });
      case "tool_call_answered": {
        const { toolCallId, output = "", error } = event;
        const chunks = this.#call({ ...event, toolInput: "{}" });
        return error === undefined
          ? [
              ...chunks,
              ...this.#answered(toolCallId, { type: "tool-output-available", toolCallId, output: valueOf(output) }),
            ]
          : [...chunks, ...this.#answered(toolCallId, { type: "tool-output-error", toolCallId, errorText: error })];
      }
      case "interaction_requested":
        return this.#asked(event.interaction);
      case "interaction_resolved":
        return this.#settled(event.interaction);
      case "provider_tools_used":
        return event.citations.map(({ uri, title }) => ({
          type: "source-url",
          sourceId: `${event.messageId} ${this.#sources++}`,
          url: uri,
          title: title || uri,
        }));
      case "model_call_ended":
        this.#stop =
          event.stopReason === "max_tokens"
            ? "length"
            : event.stopReason === "content_blocked"
              ? "content-filter"
              : "stop";
        return [];
      case "state_update":
        return [{ type: "data-state", data: event.stateDelta, transient: true }];
      case "error":
        return event.seq === 0 ? [{ type: "data-error", data: event.error.toJSON(), transient: true }] : [];
      case "connection_lost":
      case "connection_restored":
        return [{ type: "data-connection", data: { lost: event.type === "connection_lost" }, transient: true }];
      case "end": {
        const { sessionId, turnId, completed, reason, usage, structuredOutput } = { sessionId: undefined, ...event };
        const metadata = {
          turnId,
          completed,
          reason,
          usage,
          structuredOutput,
          ...(sessionId === undefined ? {} : { sessionId }),
        };
        const closed = this.#close(() => true);
        return completed
          ? [...closed, { type: "finish", finishReason: this.#stop, messageMetadata: metadata }]
          : [...closed, { type: "message-metadata", messageMetadata: metadata }, { type: "abort", reason }];
      }
      default:
        return [];
    }
  }

  #piece({ content, isThought, messageId, agentPath }: Event & { type: "output_chunk" }): UIMessageChunk[] {
    if (content === "") {
      return [];
    }
    const id = `${isThought ? "thoughts" : "text"} ${JSON.stringify(agentPath)} ${messageId}`;
    const out: UIMessageChunk[] = [];
    if (!this.#pieces.has(id)) {
      const providerMetadata = { agentd: { messageId, agentPath: [...agentPath] } };
      this.#pieces.set(id, providerMetadata);
      out.push({ type: isThought ? "reasoning-start" : "text-start", id, providerMetadata });
    }
    out.push({ type: isThought ? "reasoning-delta" : "text-delta", id, delta: content });
    return out;
  }

  /** close ends parts. There is no way to take back what a part has: it is marked. */
  #close(which: (id: string) => boolean, retracted = false): UIMessageChunk[] {
    const out: UIMessageChunk[] = [];
    for (const [id, metadata] of this.#pieces) {
      if (which(id)) {
        this.#pieces.delete(id);
        const marked = { agentd: { ...metadata["agentd"], retracted } };
        out.push({
          type: id.startsWith("thoughts") ? "reasoning-end" : "text-end",
          id,
          ...(retracted ? { providerMetadata: marked } : {}),
        });
      }
    }
    return out;
  }

  #call({ toolCallId, toolName, toolInput }: ToolCall): UIMessageChunk[] {
    if (this.#told.has(toolCallId)) {
      return [];
    }
    this.#told.add(toolCallId);
    return [{ type: "tool-input-available", toolCallId, toolName, input: valueOf(toolInput || "{}") }];
  }

  #answered(toolCallId: string, chunk: UIMessageChunk): UIMessageChunk[] {
    this.#running.delete(toolCallId);
    return this.#told.has(toolCallId) ? [chunk] : [];
  }

  #asked(interaction: Interaction): UIMessageChunk[] {
    if (interaction.status !== "pending") {
      return [];
    }
    if (interaction.kind !== "approval" || interaction.n > 0) {
      return [{ type: "data-interaction", id: interaction.id, data: interaction }];
    }
    this.approvals.set(interaction.id, interaction);
    const { toolCallId } = interaction;
    return [...this.#call(interaction), { type: "tool-approval-request", toolCallId, approvalId: interaction.id }];
  }

  #settled(interaction: Interaction): UIMessageChunk[] {
    const { id, toolCallId, status, resolution } = interaction;
    this.approvals.delete(id);
    if (interaction.kind !== "approval" || interaction.n > 0) {
      return [{ type: "data-interaction", id, data: interaction }];
    }
    if (!this.#told.has(toolCallId)) {
      return [];
    }
    if (resolution !== undefined && "deny" in resolution) {
      return [{ type: "tool-output-denied", toolCallId }];
    }
    return status === "canceled" ? [{ type: "tool-output-error", toolCallId, errorText: "canceled" }] : [];
  }
}

/** valueOf is JSON as a value, and other text as it is. */
function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
