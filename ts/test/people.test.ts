import assert from "node:assert/strict";
import { test } from "node:test";
import { Agentd, AgentdError, llm, type Prompter, type Resolution } from "@apzuk3/agentd";
import { z } from "zod";
import { serve } from "./daemon.js";
import { gather, Latch } from "./gather.js";
import { proxy } from "./proxy.js";

const scripts = {
  pay: `
answers:
  - when: {after_tool: pay}
    text: '{{tool_result "pay"}}'
  - when: {}
    calls: [{name: pay, args: {amount: 100}}]
`,
  ask: `
answers:
  - when: {after_tool: ask_user}
    text: '{{tool_result "ask_user"}}'
  - when: {}
    calls: [{name: ask_user, args: {question: "which?", choices: [this, that]}}]
`,
};
const payer = llm({ name: "payer", model: "scripted/pay", tools: ["pay"] });
const asker = llm({ name: "asker", model: "scripted/ask", builtinTools: ["ask_user"] });

function withPay(url: string, paid: number[], prompter?: Prompter): Agentd {
  return new Agentd(url, prompter === undefined ? {} : { prompter }).addTool("pay", {
    description: "Pays",
    input: z.object({ amount: z.number() }),
    needsApproval: true,
    run: ({ amount }) => {
      paid.push(amount);
      return `paid ${amount}`;
    },
  });
}

test("a tool that needs approval runs when a person has approved it", async (t) => {
  const { url } = await serve(t, scripts);
  for (const [decision, amounts, text] of [
    [{ approve: true }, [100], /^paid 100$/],
    [{ approve: true, toolInput: { amount: 5 } }, [5], /paid 5/],
    [{ deny: true, reason: "too much" }, [], /too much/],
  ] as [Resolution, number[], RegExp][]) {
    const paid: number[] = [];
    const asked: string[] = [];
    const agentd = withPay(url, paid, (interaction) => {
      assert.equal(interaction.kind, "approval");
      asked.push(`${interaction.toolName} ${interaction.toolInput}`);
      return Promise.resolve(decision);
    });
    const result = await agentd.run({ agent: payer, prompt: "pay" }).result();
    assert.match(result.text, text);
    assert.deepEqual(paid, amounts);
    assert.deepEqual(asked, ['pay {"amount":100}']);
  }
});

test("what is refused is asked again, with the reason", async (t) => {
  const { url } = await serve(t, scripts);
  const paid: number[] = [];
  const reasons: (string | undefined)[] = [];
  const says: Resolution[] = [
    { approve: true, toolInput: { amount: "much" } },
    { answer: "yes" },
    { approve: false } as unknown as Resolution,
    { approve: true, toolInput: { amount: 5 } },
  ];
  const agentd = withPay(url, paid, ({ toolInput }, _, refused) => {
    assert.equal(toolInput, '{"amount":100}');
    assert.equal(refused?.code, reasons.length === 0 ? undefined : "INVALID_REQUEST");
    reasons.push(refused?.message);
    return says.shift();
  });
  const events = await gather(agentd.run({ agent: payer, prompt: "pay" }));
  assert.deepEqual(paid, [5]);
  assert.deepEqual(events.filter((e) => e.type === "error"), []);
  assert.equal(reasons.length, 4);
  assert.match(reasons[1]!, /does not fit the input_schema of "pay".*amount/);
  assert.match(reasons[2]!, /approve, or deny/);
  assert.match(reasons[3]!, /a resolution is one of/);

  for (const [answers, asks] of [
    [[{ answer: "yes" }], 2],
    [Array<Resolution>(20).fill({ answer: "yes" }), 10],
  ] as [Resolution[], number][]) {
    let asked = 0;
    const run = withPay(url, [], () => (asked++, answers.shift())).run({ agent: payer, prompt: "pay" });
    for await (const event of run) {
      if (event.type === "error") {
        assert.equal(event.error.code, "INVALID_REQUEST");
        break;
      }
    }
    assert.equal(asked, asks);
  }
});

test("a question of an agent is answered by a person", async (t) => {
  const { url } = await serve(t, scripts);
  const agentd = new Agentd(url);
  const prompter: Prompter = ({ question, choices }) => ({ answer: `${question} ${choices.at(-1)}` });
  const events = await gather(agentd.run({ agent: asker, prompt: "ask", prompter }));
  const kinds = events.map((e) => e.type).filter((type) => type.startsWith("interaction"));
  assert.deepEqual(kinds, ["interaction_requested", "interaction_resolved"]);
  assert.match(events.flatMap((e) => (e.type === "output_chunk" ? [e.content] : [])).join(""), /which\? that/);
});

test("of two people one is first, and a replayed question that is settled is asked nobody", async (t) => {
  const { url } = await serve(t, scripts);
  const asked = new Latch();
  let dropped: unknown;
  const slow: Prompter = (_, signal) => {
    asked.open();
    return new Promise((resolve) => signal.addEventListener("abort", () => resolve(void (dropped = signal.reason))));
  };
  const first = new Agentd(url).run({ agent: asker, prompt: "ask", prompter: slow });
  const whole = gather(first);
  await asked.opened;
  const second = new Agentd(url);
  const rest = await gather(second.attach(first.sessionId!, { prompter: () => ({ answer: "by the second" }) }));
  const events = await whole;
  assert.match(String(dropped), /settled/);
  assert.deepEqual(events.filter((e) => e.type === "error"), []);
  assert.deepEqual(rest.at(-1)?.type, "end");
  await gather(second.attach(first.sessionId!, { turnId: first.turnId!, prompter: () => assert.fail("asked again") }));
});

test("interactions are found and resolved without a run", async (t) => {
  const { url } = await serve(t, scripts);
  const agentd = withPay(url, []);
  let asked = 0;
  for await (const event of agentd.run({ agent: payer, prompt: "pay" })) {
    if (event.type !== "interaction_requested") {
      continue;
    }
    asked++;
    const { id } = event.interaction;
    const pending = [];
    for await (const interaction of agentd.interactions.list({ statuses: ["pending"] })) {
      pending.push(interaction);
    }
    assert.deepEqual(pending.map((interaction) => interaction.id), [id]);
    const { sessionId } = pending[0]!;
    assert.equal((await agentd.interactions.get(sessionId, id)).status, "pending");
    assert.equal((await agentd.turns.get(sessionId)).status, "waiting_for_input");
    const deny = { deny: true, reason: "no" } as const;
    assert.equal((await agentd.interactions.resolve(sessionId, id, deny, "key")).status, "resolved");
    assert.equal((await agentd.interactions.resolve(sessionId, id, deny, "key")).status, "resolved");
    await assert.rejects(agentd.interactions.resolve(sessionId, id, { approve: true }), (err) => err instanceof AgentdError && err.code === "FAILED_PRECONDITION");
    await assert.rejects(agentd.interactions.get(sessionId, "other"), (err) => err instanceof AgentdError && err.code === "NOT_FOUND");
  }
  assert.equal(asked, 1);
});

test("a person is asked once, though the daemon is killed meanwhile, and the answer arrives", async (t) => {
  const daemon = await serve(t, scripts);
  const way = await proxy(t, daemon.url);
  const paid: number[] = [];
  let asked = 0;
  const agentd = withPay(way.url, paid, async () => {
    asked++;
    await daemon.end("SIGKILL");
    await daemon.start();
    way.target = daemon.url;
    way.losing.set("ResolveInteraction", 1);
    return { approve: true };
  });
  const { text } = await agentd.run({ agent: payer, prompt: "pay" }).result();
  assert.equal(text, "paid 100");
  assert.deepEqual([asked, paid], [1, [100]]);
  assert.equal(way.losing.get("ResolveInteraction"), 0);
});

test("a tool that runs asks a person, and learns how far the approval holds", async (t) => {
  const { url } = await serve(t, scripts);
  const asked: string[] = [];
  const prompter: Prompter = (interaction) => {
    const { kind, question, source, n, toolName, choices } = interaction;
    asked.push(`${kind} ${question} ${source} ${n} ${toolName} ${choices.join()}`);
    return { approve: true, scope: "session_tool" };
  };
  const agentd: Agentd = new Agentd(url, { prompter }).addTool("pay", {
    description: "Pays",
    input: z.object({ amount: z.number() }),
    run: async ({ amount }, { sessionId, toolCallId }) => {
      const question = { kind: "approval", question: `pay ${amount}`, choices: ["once", "session_tool"], source: "till" } as const;
      let { resolution, id } = await agentd.interactions.raise(sessionId, toolCallId, 1, question);
      while (resolution === undefined) {
        await new Promise((done) => setTimeout(done, 20));
        ({ resolution } = await agentd.interactions.get(sessionId, id));
      }
      const again = await agentd.interactions.raise(sessionId, toolCallId, 1, { kind: "input", question: "other?" });
      assert.deepEqual([again.id, again.question, again.status], [id, "pay 100", "resolved"]);
      return resolution;
    },
  });
  const run = agentd.run({ agent: payer, prompt: "pay" });
  assert.equal((await run.result()).text, '{"approve":true,"scope":"session_tool"}');
  assert.deepEqual(asked, ["approval pay 100 till 1 pay once,session_tool"]);
  await assert.rejects(
    agentd.interactions.raise(run.sessionId!, "none", 1, { kind: "approval" }),
    (err) => err instanceof AgentdError && err.code === "FAILED_PRECONDITION",
  );
});

test("an agent that another one calls as a tool has a lineage, and a client's tool like any", async (t) => {
  const { url } = await serve(t, {
    boss: `
answers:
  - when: {after_tool: scout}
    text: 'boss: {{tool_result "scout"}}'
  - when: {}
    calls: [{name: scout, args: {request: "go and pay"}}]
`,
    pay: scripts.pay,
  });
  const scout = llm({ name: "scout", description: "goes ahead", model: "scripted/pay", tools: ["pay"] });
  const agent = llm({ name: "boss", model: "scripted/boss", agentTools: [{ agent: scout, branch: "ahead", maxDepth: 1 }] });
  const paid: number[] = [];
  const seen = new Set<string>();
  const agentd = withPay(url, paid, () => ({ approve: true }));
  let text = "";
  for await (const event of agentd.run({ agent, prompt: "go" })) {
    if (event.lineage !== undefined) {
      const { branch, depth, parentSessionId, position } = event.lineage;
      seen.add(`${branch} ${depth} "${parentSessionId}" ${position}: ${event.type}`);
    } else if (event.type === "output_chunk") {
      text += event.content;
    }
  }
  assert.deepEqual([paid, text], [[100], "boss: paid 100"]);
  assert.ok(seen.has('ahead 1 "" 0: agent_started') && seen.has('ahead 1 "" 0: output_chunk') && seen.has('ahead 1 "" 0: tool_call'), [...seen].join());
});
