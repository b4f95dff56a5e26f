// What tests do with events.
import { Transcript, type Event } from "@apzuk3/agentd";

/** gather iterates a run to its end. How the connection was meanwhile is left out. */
export async function gather(events: AsyncIterable<Event>): Promise<Event[]> {
  const out: Event[] = [];
  for await (const event of events) {
    if (!event.type.startsWith("connection_")) {
      out.push(event);
    }
  }
  return out;
}

/** told is what events tell, however their texts are cut into pieces. */
export function told(events: Event[]): { messages: unknown; facts: unknown } {
  const transcript = new Transcript();
  events.forEach((event) => transcript.add(event));
  // Which client is asked for a tool is not the same for all.
  const facts = events.filter((e) => e.type !== "output_chunk" && !e.type.startsWith("connection_")).map((e) => [e.seq, e.type === "tool_call_announced" ? "tool_call" : e.type]);
  return { messages: transcript.messages, facts };
}

/** rising tells whether the seqs of events rise, so that none came twice. */
export function rising(events: Event[]): boolean {
  let last = 0;
  return events.filter((e) => e.seq !== 0).every(({ seq }) => {
    const risen = seq > last;
    last = seq;
    return risen;
  });
}

/** Latch is opened once. */
export class Latch {
  readonly opened: Promise<void>;
  open = () => {};

  constructor() {
    this.opened = new Promise((resolve) => (this.open = resolve));
  }
}

/** all takes what an iterable yields. */
export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) {
    out.push(item);
  }
  return out;
}
