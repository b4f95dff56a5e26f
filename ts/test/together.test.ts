// Two browsers and a Go client watch one turn. Whoever starts it, whoever answers its tool, whoever goes away meanwhile: those who
// stay see the same events, and the log is the same.
import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { after, before, test, type TestContext } from "node:test";
import { Agentd, Transcript, type Event } from "@apzuk3/agentd";
import { skip } from "./chromium.js";
import { serve, type Daemon } from "./daemon.js";
import { serveExample } from "./example.js";
import { gather } from "./gather.js";
import { InGo, InPage, type Leave, type Witness } from "./witness.js";

const names = ["the first browser", "the second browser", "the Go client"] as const;
type Name = (typeof names)[number];

interface Scenario {
  starts: Name;
  answers: Name;
  leaves: Name | undefined;
  how: Leave;
}

// A call is offered to one client at a time, so another one is asked only when the one that has started the turn has left.
// Which browser starts makes no difference.
const scenarios: Scenario[] = names
  .filter((starts) => starts !== "the second browser")
  .flatMap((starts) => names.map((answers) => ({ starts, answers })))
  .flatMap((s) => [undefined, ...names].map((leaves) => ({ ...s, leaves })))
  .filter(({ starts, answers, leaves }) => leaves !== answers && (answers === starts || leaves === starts))
  .map((s, i) => ({ ...s, how: i % 2 === 0 ? "killed" : "closed" }));

let site = "";
let close = () => {};

before(async () => {
  if (skip === false) {
    const server = await serveExample("127.0.0.1", 0);
    site = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    close = () => server.close();
  }
});

after(() => close());

for (const { starts, answers, leaves, how } of scenarios) {
  const title = `${starts} starts, ${answers} answers, ${leaves === undefined ? "all stay" : `${leaves} is ${how} meanwhile`}`;
  test(title, { skip, timeout: 60_000 }, async (t) => {
    const daemon = await serve(t, {}, `--cors-origins=${site}`);
    const all = await witnesses(t, daemon);
    const turn = await all[starts].start();
    await Promise.all(names.filter((name) => name !== starts).map((name) => all[name].join(turn, name === answers)));
    const before = leaves && { facts: told(await all[leaves].facts()), said: await all[leaves].said() };
    if (leaves !== undefined) {
      await all[leaves].leave(how);
    }
    await all[answers].asked();
    await all[answers].answer("Sencha");
    const stay = names.filter((name) => name !== leaves);
    await Promise.all(stay.map((name) => all[name].done()));

    const { facts, said } = await logged(daemon, turn);
    assert.deepEqual(facts.map(anonymous), expected);
    assert.equal(said, "Let me use pick_tea for that.\nThe tool pick_tea says: Sencha");
    for (const name of stay) {
      assert.deepEqual(told(await all[name].facts(), facts), facts, name);
      assert.equal(await all[name].said(), said, name);
    }
    if (before !== undefined) {
      assert.deepEqual(before, { facts: facts.slice(0, before.facts.length), said: "Let me use pick_tea for that." });
    }
  });
}

/** What such a turn has in its log, whoever was there: S is its session, C its call, N a number that depends on who started. */
const expected = [
  "1048576 turn_started S",
  "1048578 agent_started scripted/demo",
  "2097158 message_completed 29 bytes",
  "2097161 model_call_ended scripted/demo, N tokens",
  '2097168 tool_call C pick_tea {"question":"like"}',
  "3145744 tool_call_answered C pick_tea Sencha",
  "5242886 message_completed 30 bytes",
  "5242889 model_call_ended scripted/demo, N tokens",
  "6340608 agent_ended completed",
  "6356991 end completed, 2 model calls",
];

async function witnesses(t: TestContext, daemon: Daemon): Promise<Record<Name, Witness>> {
  const [first, second] = await Promise.all([InPage.launch(site, daemon.url), InPage.launch(site, daemon.url)]);
  const all = { "the first browser": first, "the second browser": second, "the Go client": new InGo(daemon.url) };
  t.after(() => Promise.all(Object.values(all).map((witness) => witness.leave("killed"))));
  return all;
}

async function logged(daemon: Daemon, turn: string): Promise<{ facts: string[]; said: string }> {
  const [sessionId = "", turnId = ""] = turn.split("/");
  const events = await gather(new Agentd(daemon.url).turns.events(sessionId, { turnId }));
  const transcript = new Transcript();
  events.forEach((event) => transcript.add(event));
  return {
    facts: told(events.filter((event) => event.type !== "output_chunk").map((event) => `${event.seq} ${factOf(event)}`)),
    said: transcript.messages.map((message) => message.text).join("\n"),
  };
}

/** factOf says of an event what witnesses say. */
function factOf(event: Event): string {
  switch (event.type) {
    case "turn_started":
      return `turn_started ${event.sessionId}`;
    case "tool_call":
    case "tool_call_announced":
      return `tool_call ${event.toolCallId} ${event.toolName} ${event.toolInput}`;
    case "tool_call_answered":
      return `tool_call_answered ${event.toolCallId} ${event.toolName} ${event.output ?? event.error}`;
    case "agent_started":
      return `agent_started ${event.model}`;
    case "agent_ended":
      return `agent_ended ${event.outcome}`;
    case "message_completed":
      return `message_completed ${event.textBytes} bytes`;
    case "model_call_ended":
      return `model_call_ended ${event.model}, ${event.usage?.totalTokens} tokens`;
    case "end":
      return `end ${event.completed ? "completed" : `stopped: ${event.reason}`}, ${event.usage?.modelCalls} model calls`;
    default:
      return event.type;
  }
}

/**
 * told is what is the same for all: not who was asked for a call, and how often. The Go client tells its own result before it has a
 * seq.
 */
function told(facts: string[], log: string[] = []): string[] {
  const same = facts.map((fact) => fact.replace(" tool_call_announced ", " tool_call "));
  return [...new Set(same.map((fact) => (fact.startsWith("0 tool_call_answered ") ? log.find((f) => f.endsWith(fact.slice(1))) : undefined) ?? fact))];
}

function anonymous(fact: string): string {
  return fact.replace(/ turn_started \w+$/, " turn_started S").replace(/ call_\w+ /, " C ").replace(/ \d+ tokens$/, " N tokens");
}
