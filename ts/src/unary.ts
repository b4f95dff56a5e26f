// Requests with one reply.
import { AgentdError } from "./errors.js";
import type { Methods } from "./methods.js";
import type { Wire } from "./wire.js";

/** Unary makes one request, and no second one. What fails is an AgentdError. */
export type Unary = <M extends keyof Methods>(method: M, request: Methods[M][0]) => Promise<Methods[M][1]>;

/** unary returns a Unary with headers and a time limit in milliseconds. */
export function unary(wire: Wire, headers: Headers, timeoutMs: number): Unary {
  return (method, request) => wire.call(method, request, { headers, timeoutMs });
}

/** required returns what a reply must hold. */
export function required<T>(value: T | undefined, what: string): T {
  if (value === undefined) {
    throw new AgentdError("INTERNAL", `the server did not reply with ${what}`);
  }
  return value;
}

/** Page is which page of a list is asked for; the first one has no token. */
export interface Page {
  pageToken?: string;
}

/** pages yields the items of all pages of a list; a page is asked for when the items before it were taken. */
export async function* pages<J, T>(
  page: (which: Page) => Promise<{ items: J[] | undefined; nextPageToken?: string | undefined }>,
  convert: (item: J) => T,
): AsyncGenerator<T, void, undefined> {
  let token = "";
  do {
    const { items = [], nextPageToken = "" } = await page(token === "" ? {} : { pageToken: token });
    yield* items.map(convert);
    token = nextPageToken;
  } while (token !== "");
}
