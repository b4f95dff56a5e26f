// A page with useSession that can be taken down and put up again; loaded by sessionpage.test.ts.
import { Agentd, llm } from "@apzuk3/agentd";
import { useSession } from "@apzuk3/agentd/react";
import { createElement as h, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
/** source is where the page's own server has tokens for the session; without it the daemon asks nobody who calls. */
const source = query.get("tokens");
const agentd = new Agentd(query.get("agentd") ?? "", {
  reconnect: { baseMs: 1, capMs: 20 },
  token: source === null ? undefined : async () => (await fetch(source)).text(),
});
const agent = llm({ name: "a", model: "echo" });

function Chat() {
  const { messages, status, connection, error, send } = useSession(agentd, { sessionId: query.get("session") ?? undefined, agent });
  return h("main", null,
    h("p", { id: "status" }, error?.message ?? (connection === "lost" ? "lost" : status)),
    h("button", { onClick: () => void send(`by ${query.get("name")}`) }, "Ask"),
    h("ol", null, messages.map(({ id, role, text }) => h("li", { key: id }, `${role}: ${text}`))));
}

function Page() {
  const [up, setUp] = useState(true);
  return h("div", null, h("button", { onClick: () => setUp(!up) }, up ? "Take down" : "Put up"), up ? h(Chat) : null);
}

createRoot(document.querySelector("#page")!).render(h(StrictMode, null, h(Page)));
