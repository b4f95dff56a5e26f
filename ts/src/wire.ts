// The Connect protocol over fetch, with JSON: requests with one reply, and with a stream of them.
import type { Credential } from "./credential.js";
import { AgentdError, codes, fromThrown, type ErrorCode } from "./errors.js";
import { errorOf } from "./fromjson.js";
import type { RunResponse_ErrorResponseJson } from "./gen/agentd/v1/service_pb.js";
import { bytesOf } from "./json.js";
import type { Methods } from "./methods.js";
import { messageOf } from "./text.js";
import { follows } from "./wait.js";

/** CallOptions says how a request is made. */
export interface CallOptions {
  headers: Headers;
  /** Ends the request; its reason is thrown. */
  signal?: AbortSignal | undefined;
}

/** UnaryOptions says how a request with one reply is made. */
export interface UnaryOptions extends CallOptions {
  /** How long it may take, in milliseconds. */
  timeoutMs: number;
}

/** StreamOptions says how a stream is asked for. */
export interface StreamOptions extends CallOptions {
  /** Told that the server has taken the stream. */
  onHeader?: () => void;
  /** Told which token the request has; undefined if none. */
  onToken?: (token: string | undefined) => void;
}

/** Failure is an error of the Connect protocol. */
interface Failure {
  code?: string;
  message?: string;
  details?: { type?: string; value?: string; debug?: unknown }[];
}

const services = "/agentd.v1.";
const errorType = "agentd.v1.RunResponse.ErrorResponse";

/** How large a message of a stream may be, in bytes: far more than servers send. */
const maxMessage = 256 << 20;

/** Bits of an envelope's first byte. */
const compressed = 1;
const endOfStream = 2;

/**
 * Wire speaks to one server. Each call makes one request and throws an AgentdError, or the reason of its signal; a
 * request without a reply in time is TIMEOUT. One with one reply whose token is refused is made once more, if there is
 * another token; a stream is for its caller to open again.
 */
export class Wire {
  /** Whose token each request has. */
  readonly credential: Credential;
  readonly #base: string;
  readonly #fetch: typeof globalThis.fetch;

  constructor(baseUrl: string, fetch: typeof globalThis.fetch, credential: Credential) {
    this.#base = baseUrl.replace(/\/+$/, "") + services;
    this.#fetch = fetch;
    this.credential = credential;
  }

  /** call makes a request with one reply. */
  async call<M extends keyof Methods>(
    method: M,
    request: Methods[M][0],
    options: UnaryOptions,
  ): Promise<Methods[M][1]> {
    const { controller, release } = follows(options.signal);
    const { timeoutMs } = options;
    const late = new AgentdError("TIMEOUT", `the request failed: there was no reply after ${timeoutMs} ms`);
    const timer = setTimeout(() => controller.abort(late), timeoutMs);
    try {
      const headers = this.#headers(options.headers, "application/json");
      headers.set("Connect-Timeout-Ms", String(Math.min(Math.ceil(timeoutMs), 9_999_999_999)));
      const response = await this.#sendOrRenew(method, JSON.stringify(request), headers, controller.signal);
      checkType(response, "application/json");
      return (await response.json()) as Methods[M][1];
    } catch (thrown) {
      throw why(thrown, controller.signal);
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  /** watch yields what a turn, a session, or the event log tells. Who leaves it ends the request. */
  async *watch<M extends "WatchTurn" | "WatchSession" | "EventService/Watch">(
    method: M,
    request: Methods[M][0],
    options: StreamOptions,
  ): AsyncGenerator<Methods[M][1], void, undefined> {
    const { controller, release } = follows(options.signal);
    try {
      const headers = this.#headers(options.headers, "application/connect+json");
      const body = enveloped(JSON.stringify(request));
      options.onToken?.(await this.#authorize(headers, controller.signal));
      const response = await this.#send(method, body, headers, controller.signal);
      checkType(response, "application/connect+json");
      options.onHeader?.();
      for await (const { flags, text } of envelopes(response)) {
        const message = JSON.parse(text) as Methods[M][1] & { error?: Failure };
        if ((flags & endOfStream) === 0) {
          yield message;
          continue;
        }
        if (message.error !== undefined) {
          throw failureOf(message.error, { method });
        }
        return;
      }
      throw new AgentdError("UNAVAILABLE", "the request failed: the stream broke off");
    } catch (thrown) {
      throw why(thrown, controller.signal);
    } finally {
      release();
      controller.abort(new AgentdError("UNSPECIFIED", "the stream is no longer wanted"));
    }
  }

  #headers(base: Headers, contentType: string): Headers {
    this.credential.mustBeAlone(base);
    const headers = new Headers(base);
    headers.set("Content-Type", contentType);
    headers.set("Connect-Protocol-Version", "1");
    return headers;
  }

  /** authorize sets the token of a request, and returns it. */
  async #authorize(headers: Headers, signal: AbortSignal): Promise<string | undefined> {
    const token = await this.credential.token(signal);
    if (token !== undefined) {
      headers.set("Authorization", `Bearer ${token}`);
    }
    return token;
  }

  /** sendOrRenew is send, once more where the token is refused and there is another one. */
  async #sendOrRenew(method: string, body: BodyInit, headers: Headers, signal: AbortSignal): Promise<Response> {
    const token = await this.#authorize(headers, signal);
    try {
      return await this.#send(method, body, headers, signal);
    } catch (thrown) {
      const refused = fromThrown(thrown).code === "UNAUTHENTICATED";
      if (!refused || (await this.#authorize(headers, signal)) === token) {
        throw thrown;
      }
      return this.#send(method, body, headers, signal);
    }
  }

  /** send makes a request and returns its reply, if the server has not refused it. */
  async #send(method: string, body: BodyInit, headers: Headers, signal: AbortSignal): Promise<Response> {
    const path = method.includes("/") ? method : `SessionService/${method}`;
    const response = await this.#fetch(this.#base + path, { method: "POST", headers, body, signal });
    if (response.ok) {
      return response;
    }
    const failure: unknown = await response.json().catch(() => ({}));
    const asked = response.headers.get("Retry-After") ?? ""; // of a proxy
    const retryAfterMs = /^\d{1,9}$/.test(asked) ? Number(asked) * 1000 : undefined;
    throw failureOf((failure ?? {}) as Failure, { method, status: response.status, retryAfterMs });
  }
}

/** why is the error of a request that has failed: the reason for which it was ended, if it was. */
function why(thrown: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) {
    return signal.reason;
  }
  return thrown instanceof AgentdError
    ? thrown
    : new AgentdError("UNAVAILABLE", `the request failed: ${messageOf(thrown)}`, { cause: thrown });
}

function checkType(response: Response, wanted: string): void {
  const type = response.headers.get("Content-Type") ?? "";
  if (type.split(";")[0]?.trim().toLowerCase() !== wanted) {
    throw new AgentdError("UNAVAILABLE", `the request failed: the reply is ${JSON.stringify(type)}, not ${wanted}`);
  }
}

/** Statuses of replies that are not of the protocol, such as a proxy's. */
const statuses: ReadonlyMap<number, string> = new Map([
  [401, "unauthenticated"],
  [403, "permission_denied"],
  [404, "unimplemented"],
]);

/** Codes of Connect that say what was wrong with the request; all others are a connection that did not work. */
const connectCodes: ReadonlyMap<string, ErrorCode> = new Map<string, ErrorCode>([
  ["deadline_exceeded", "TIMEOUT"],
  ["unauthenticated", "UNAUTHENTICATED"],
  ["permission_denied", "PERMISSION_DENIED"],
  ["resource_exhausted", "LIMIT_EXCEEDED"],
]);

/** Refused is what is known of a failure besides. */
interface Refused {
  method: string;
  status?: number;
  retryAfterMs?: number | undefined;
}

/** failureOf translates an error of the Connect protocol, or a status where the reply has none. */
function failureOf({ code, message = "", details = [] }: Failure, refused: Refused): AgentdError {
  const { method, status, retryAfterMs } = refused;
  const detail = details.find(({ type }) => type === errorType);
  if (detail !== undefined) {
    return errorOf(detailOf(detail));
  }
  const kind = code ?? statuses.get(status ?? 0) ?? "unknown";
  if (kind === "unimplemented") {
    const said = `this address does not serve ${method} of agentd.v1.SessionService: ${message || `HTTP ${status}`}`;
    return new AgentdError(
      "INVALID_REQUEST",
      `${said}; there is no agentd, or one that is older than this client`,
    );
  }
  const said = code === undefined ? `HTTP ${status}` : code === "unknown" ? message : `[${code}] ${message}`;
  return new AgentdError(connectCodes.get(kind) ?? "UNAVAILABLE", `the request failed: ${said}`, { retryAfterMs });
}

/**
 * detailOf is the server's own error. It comes as binary protobuf; agentd servers have it as JSON too. Where a gateway
 * has left that out, the code, the message and whether to try again are read from the binary form.
 */
function detailOf({ value, debug }: { value?: string; debug?: unknown }): RunResponse_ErrorResponseJson {
  if (typeof debug === "object" && debug !== null) {
    return debug;
  }
  const bytes = bytesOf(padded(value ?? ""));
  const out: RunResponse_ErrorResponseJson = {};
  let at = 0;
  const varint = () => {
    let result = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++] ?? 0;
      result += (byte & 127) * scale;
      if (byte < 128) {
        return result;
      }
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const [field, kind] = [Math.floor(tag / 8), tag % 8];
    const number = kind === 1 ? 8 : kind === 5 ? 4 : varint(); // or the length of what follows
    const start = at;
    at += kind === 0 ? 0 : number;
    if (field === 2) {
      out.code = `ERROR_CODE_${codes[number] ?? "UNSPECIFIED"}`;
    } else if (field === 3) {
      out.message = new TextDecoder().decode(bytes.subarray(start, at));
    } else if (field === 4) {
      out.retryable = number !== 0;
    }
  }
  return out;
}

/** padded is base64 with the padding that Connect leaves out. */
function padded(base64: string): string {
  return base64 + "=".repeat((4 - (base64.length % 4)) % 4);
}

function enveloped(text: string): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(text);
  const out = new Uint8Array(5 + data.length);
  new DataView(out.buffer).setUint32(1, data.length);
  out.set(data, 5);
  return out;
}

/** envelopes yields the frames of a stream. */
async function* envelopes(response: Response): AsyncGenerator<{ flags: number; text: string }, void, undefined> {
  const reader = response.body?.getReader();
  if (reader === undefined) {
    return;
  }
  let held = new Uint8Array();
  let size = 0; // of what held has; the rest is room
  for (;;) {
    let at = 0;
    while (size - at >= 5) {
      const head = new DataView(held.buffer, held.byteOffset + at, 5);
      const [flags, length] = [head.getUint8(0), head.getUint32(1)];
      if (length > maxMessage) {
        throw new AgentdError(
          "LIMIT_EXCEEDED",
          `the request failed: a message has ${length} bytes, at most ${maxMessage} are taken`,
        );
      }
      if (size - at < 5 + length) {
        break;
      }
      if ((flags & compressed) !== 0) {
        throw new AgentdError("UNAVAILABLE", "the request failed: a message is compressed, which was not asked for");
      }
      yield { flags, text: new TextDecoder().decode(held.subarray(at + 5, at + 5 + length)) };
      at += 5 + length;
    }
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const left = size - at;
    if (left === 0) {
      held = new Uint8Array(value);
    } else {
      const need = left + value.length;
      // Room for twice as much, so that a message of many pieces is not copied with each of them.
      const room = need <= held.length && at === 0 ? held : new Uint8Array(at === 0 ? 2 * need : need);
      if (room !== held) {
        room.set(held.subarray(at, size));
      }
      room.set(value, left);
      held = room;
    }
    size = left + value.length;
  }
}
