// Requests with one answer.
import type { DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { AgentdError, fromThrown } from "./errors.js";

/** Fields is what a request of the protocol may hold, but for some fields. */
export type Fields<S extends DescMessage, Without extends string = never> = Omit<MessageInitShape<S>, Without | "$typeName">;

/** Unary makes one request, and no second one. What fails is an AgentdError. */
export type Unary = <T>(request: (options: CallOptions) => Promise<T>) => Promise<T>;

/** unary returns a Unary with headers and a time limit in milliseconds. */
export function unary(headers: Headers, timeoutMs: number): Unary {
  return async (request) => {
    try {
      return await request({ headers, timeoutMs });
    } catch (thrown) {
      throw fromThrown(thrown);
    }
  };
}

/** required returns what an answer must hold. */
export function required<T>(value: T | undefined, what: string): T {
  if (value === undefined) {
    throw new AgentdError("INTERNAL", `the server did not answer with ${what}`);
  }
  return value;
}

/** pages yields the items of all pages of a list; a page is asked for when the items before it were taken. */
export async function* pages<T>(page: (token: string) => Promise<{ items: T[]; nextPageToken: string }>): AsyncGenerator<T, void, undefined> {
  let token = "";
  do {
    const { items, nextPageToken } = await page(token);
    yield* items;
    token = nextPageToken;
  } while (token !== "");
}
