// Live updates. One tab of the browser (the leader) holds the only event stream and passes each update on to the other
// tabs, because a browser allows six connections to a host. Hidden tabs ask for nothing.
"use strict";
(() => {
  const view = document.body.dataset.view;
  if (!view) return;
  const base = new URL(".", location.href).href;
  const me = Math.random().toString(36).slice(2);
  const channel = "BroadcastChannel" in window ? new BroadcastChannel(`onerow ${base}`) : null;
  const wanted = new Map(); // tab → {view, at}, as the leader knows them
  let paused = sessionStorage.getItem("onerow-paused") === "1";
  let heardAt = 0;
  let stream = null;
  let open = "";
  let leading = false;
  let timer = 0;
  const indicator = document.getElementById("live-state");

  const asks = () => !paused && !document.hidden;

  function show(state) {
    if (!indicator) return;
    indicator.dataset.state = state;
    indicator.querySelector("span").textContent = indicator.dataset[`text${state[0].toUpperCase()}${state.slice(1)}`];
    indicator.setAttribute("aria-pressed", String(state === "paused"));
  }

  function receive(message) {
    heardAt = Date.now();
    if (message.kind === "beat") return show(paused ? "paused" : "live");
    if (message.kind === "rail") return window.onerow.update("rail", message.html);
    if (message.view !== view || paused) return;
    if (message.kind === "away") {
      show(message.state);
      return window.onerow.away(message.html);
    }
    show("live");
    window.onerow.away("");
    document.body.dataset.digest = message.digest;
    if (document.body.dataset.failed) return location.reload();
    window.onerow.update("main", message.html);
  }

  function tell() {
    if (leading) return note({ tab: me, view: asks() ? view : "" });
    channel?.postMessage({ kind: "want", tab: me, view: asks() ? view : "" });
  }

  function note({ tab, view: asked }) {
    if (asked) wanted.set(tab, { view: asked, at: Date.now() });
    else wanted.delete(tab);
    clearTimeout(timer);
    timer = setTimeout(connect, 80);
  }

  function connect() {
    const views = [...new Set([...wanted.values()].map((each) => each.view))].sort().slice(0, 16);
    const key = views.join("\n");
    if (key === open && stream && stream.readyState !== 2) return;
    stream?.close();
    stream = null;
    open = key;
    if (!views.length) return;
    const query = new URLSearchParams(views.map((each) => ["view", each]));
    if (views.length === 1 && views[0] === view) query.set("have", document.body.dataset.digest || "");
    stream = new EventSource(`${base}live?${query}`);
    stream.onmessage = (event) => {
      const message = JSON.parse(event.data);
      channel?.postMessage(message);
      receive(message);
    };
    stream.onerror = async () => {
      if (stream?.readyState !== 2) return;
      const answer = await fetch(`${base}help`).catch(() => null);
      // The session has ended: the page leads to the log-in.
      if ([401, 403].includes(answer?.status) && !document.querySelector("dialog[open]")) return location.reload();
      setTimeout(connect, 2000);
    };
  }

  function lead() {
    leading = true;
    wanted.set(me, { view: asks() ? view : "", at: Date.now() });
    if (!asks()) wanted.delete(me);
    channel?.postMessage({ kind: "leader" });
    connect();
    setInterval(() => {
      for (const [tab, each] of wanted) if (tab !== me && Date.now() - each.at > 45000) wanted.delete(tab);
      connect();
    }, 5000);
  }

  if (channel)
    channel.onmessage = ({ data }) => {
      if (data.kind === "want") return leading && note(data);
      if (data.kind === "leader") return tell();
      receive(data);
    };
  if (channel && navigator.locks) {
    navigator.locks.request(`onerow live ${base}`, () => new Promise(lead));
    tell();
    setInterval(() => asks() && tell(), 15000);
  } else lead();

  document.addEventListener("visibilitychange", tell);
  addEventListener("pagehide", () => {
    stream?.close();
    if (!leading) channel?.postMessage({ kind: "want", tab: me, view: "" });
  });
  addEventListener("pageshow", (event) => event.persisted && tell());
  setInterval(() => {
    if (paused) show("paused");
    else if (heardAt && Date.now() - heardAt > 12000 && !document.hidden) show("stale");
  }, 1000);

  window.onerow.toggleLive = () => {
    paused = !paused;
    sessionStorage.setItem("onerow-paused", paused ? "1" : "0");
    show(paused ? "paused" : "live");
    document.body.dataset.digest = "";
    tell();
  };
  indicator?.addEventListener("click", window.onerow.toggleLive);
  if (paused) show("paused");
})();
