// State that sessions share.
import { pageSizeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import type { ListSharedStateRequestJson, SharedStateEntryJson } from "./gen/agentd/v1/sessions_pb.js";
import { given, type JsonValue } from "./json.js";
import { asJson, messageOf } from "./text.js";
import { pages, type Unary } from "./unary.js";

/** SharedStateFilter says which keys to list. */
export interface SharedStateFilter {
  /** Only keys that begin with this, such as `app:`; left out, or empty: all. */
  prefix?: string | undefined;
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
}

/** SharedStateEntry is a key of state that sessions share. */
export interface SharedStateEntry {
  /** With its scope, such as `app:plan`. */
  readonly key: string;
  /** JSON.parse of valueText. */
  readonly value: JsonValue;
  /** The value as JSON text, for readers to whom the numbers of JavaScript are not enough. */
  readonly valueText: string;
  /** How many bytes of its scope's bound it takes. */
  readonly bytes: number;
}

/**
 * SharedState has the keys of state that sessions share: those of `app:`, and the caller's own of `user:`. It is for
 * operators, PERMISSION_DENIED for others. Each method makes one request, a list one for each page, and throws an
 * AgentdError.
 */
export class SharedState {
  readonly #unary: Unary;

  /** @internal */
  constructor(unary: Unary) {
    this.#unary = unary;
  }

  /** list yields keys and their values, by name, page by page. */
  list(filter: SharedStateFilter = {}): AsyncGenerator<SharedStateEntry, void, undefined> {
    const { prefix } = filter;
    const request = given<ListSharedStateRequestJson>({ prefix, pageSize: pageSizeOf(filter.pageSize) });
    return pages(async (page) => {
      const { entries, nextPageToken } = await this.#unary("ListSharedState", { ...request, ...page });
      return { items: entries, nextPageToken };
    }, entryOf);
  }

  /**
   * set sets all of the values, at most 1,000, or none of them: each under its key with its scope, `app:plan`. null
   * removes a key; one whose value is undefined stays as it is.
   */
  async set(values: Readonly<Record<string, JsonValue | undefined>>): Promise<void> {
    const set = Object.entries(values).filter(([, value]) => value !== undefined);
    await this.#unary("SetSharedState", { values: set.map(([key, value]) => ({ key, value: textOf(key, value) })) });
  }

  /** remove removes keys, at most 1,000, and returns those that were there. One that is not there is no error. */
  async remove(keys: readonly string[]): Promise<string[]> {
    return (await this.#unary("RemoveSharedState", { keys: [...keys] })).removed ?? [];
  }
}

function entryOf({ key = "", value = "null", bytes }: SharedStateEntryJson): SharedStateEntry {
  return { key, value: JSON.parse(value) as JsonValue, valueText: value, bytes: Number(bytes ?? 0) };
}

function textOf(key: string, value: JsonValue | undefined): string {
  try {
    return JSON.stringify(asJson(value as JsonValue));
  } catch (thrown) {
    const why = `the value of ${JSON.stringify(key)} is no JSON: ${messageOf(thrown)}`;
    throw new AgentdError("INVALID_REQUEST", why, { cause: thrown });
  }
}
