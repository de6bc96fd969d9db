// What every page does in the browser: changes in place, times, copying, theme, dialogs and toasts.
"use strict";
window.onerow = (() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const language = document.documentElement.lang || "en";
  let utc = localStorage.getItem("onerow-utc") === "1";
  let pointed = null;
  document.addEventListener("pointerover", (event) => (pointed = event.target));

  // ── changes in place ──

  function keyOf(node) {
    return node.nodeType === 1 ? node.id || node.dataset?.key || "" : "";
  }

  function sameKind(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
  }

  // Attributes that a person changes by clicks and keys are named in data-mine; updates leave them alone.
  function copyAttributes(from, to) {
    const mine = ["open", ...(from.dataset.mine || "").split(" ")];
    for (const { name, value } of [...to.attributes])
      if (from.getAttribute(name) !== value && !mine.includes(name)) from.setAttribute(name, value);
    for (const { name } of [...from.attributes])
      if (!to.hasAttribute(name) && !mine.includes(name) && !["class", "aria-selected"].includes(name)) from.removeAttribute(name);
  }

  function morph(from, to) {
    if (from.nodeType !== 1) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (from.isEqualNode(to)) return;
    if (from.nodeName === "TIME" && from.dateTime === to.dateTime && from.dataset.kind === to.dataset.kind) return;
    const version = from.dataset.version;
    const chosen = ["at", "open"].filter((name) => from.classList.contains(name));
    copyAttributes(from, to);
    from.classList.add(...chosen);
    if (version && version !== from.dataset.version) {
      from.classList.remove("changed");
      void from.offsetWidth;
      from.classList.add("changed");
    }
    if ("keep" in from.dataset || from === document.activeElement) return;
    if ("list" in from.dataset && holdsStill(from)) return morphList(from, to);
    children(from, to);
  }

  function children(from, to) {
    const keyed = new Map();
    for (const child of from.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const key = keyOf(wanted);
      let found = key ? keyed.get(key) : at;
      while (!key && found && keyOf(found)) found = found.nextSibling;
      if (found && sameKind(found, wanted)) {
        if (found !== at) from.insertBefore(found, at);
        else at = at.nextSibling;
        morph(found, wanted);
      } else from.insertBefore(wanted, at);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  // Rows that a person points at, walks through or has marked stay where they are; new rows wait behind a button.
  function holdsStill(list) {
    return list.contains(pointed) || list.contains(document.activeElement) || !!$("input:checked, .at", list);
  }

  let held = null;
  function morphList(from, to) {
    const rows = new Map([...to.children].map((row) => [keyOf(row), row]));
    let fresh = 0;
    for (const row of [...from.children]) {
      const now = rows.get(keyOf(row));
      row.classList.toggle("gone", !now);
      if (now) morph(row, now.cloneNode(true));
    }
    for (const key of rows.keys()) if (key && !document.getElementById(key)) fresh += 1;
    if (fresh) hold({ from, to }, fresh);
  }

  function hold(list, fresh) {
    held = list;
    const button = document.getElementById("fresh");
    button.hidden = !list;
    button.textContent = button.dataset.text.replace("{n}", fresh);
  }

  function showHeld() {
    if (!held) return false;
    children(held.from, held.to);
    hold(null, 0);
    decorate();
    return true;
  }

  function update(id, html) {
    const target = document.getElementById(id);
    if (!target) return;
    const wanted = target.cloneNode(false);
    const parsed = new DOMParser().parseFromString(`<body>${html}</body>`, "text/html");
    wanted.append(...parsed.body.childNodes);
    const log = $(".log[data-follow]", target);
    const follows = id === "main" && (!log || log.scrollTop + log.clientHeight >= log.scrollHeight - 30);
    if (id === "main") hold(null, 0);
    morph(target, document.importNode(wanted, true));
    if (id === "rail") markActive();
    decorate(target);
    window.htmx?.process(target);
    if (follows) showEnd();
    target.dispatchEvent(new CustomEvent("onerow:update", { bubbles: true }));
  }

  function showEnd() {
    const log = $(".log[data-follow]");
    if (log) log.scrollTop = log.scrollHeight;
  }

  // The rail is the same for all pages; which of them this is, only the page knows.
  function markActive() {
    const { page, board } = document.body.dataset;
    for (const link of all("#rail a")) {
      const here = link.dataset.page ? link.dataset.page === (page || "overview") : page === "board" && link.dataset.name === board;
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  function away(html) {
    const place = document.getElementById("away");
    if (!place || place.innerHTML === html) return;
    place.innerHTML = html;
  }

  // ── times ──

  const steps = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "always", style: "short" });

  function ago(moment) {
    let seconds = (moment - Date.now() - skew) / 1000;
    if (seconds > 0 && seconds < 1.5) seconds = -0; // just now, on clocks that differ a little
    const [unit, size] = steps.find(([, each]) => Math.abs(seconds) >= each) || steps[3];
    return relative.format(Math.trunc(seconds / size), unit);
  }

  function span(seconds) {
    const parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
    let left = Math.max(0, Math.floor(seconds));
    const first = parts.findIndex(([, size]) => left >= size);
    if (first < 0) return "0s";
    return parts.slice(first, first + 2).map(([unit, size]) => {
      const count = Math.floor(left / size);
      left -= count * size;
      return count ? `${count}${unit}` : "";
    }).filter(Boolean).join(" ");
  }

  const skew = Number(document.body.dataset.now || Date.now()) - Date.now();

  function absolute(moment) {
    const part = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" };
    return new Intl.DateTimeFormat(language === "en" ? "en-GB" : language, {
      timeZone: utc ? "UTC" : undefined, year: "numeric", month: "short", day: "numeric", ...part,
    }).format(moment);
  }

  const zone = () => utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;

  function clock(moment) {
    return new Intl.DateTimeFormat("en-GB", { timeZone: utc ? "UTC" : undefined, hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(moment);
  }

  function times(root = document) {
    for (const each of all("time[datetime]", root)) {
      const moment = new Date(each.dateTime);
      const kind = each.dataset.kind || "ago";
      const text = kind === "ago" ? ago(moment) : kind === "age" ? span((Date.now() + skew - moment) / 1000)
        : kind === "left" ? span((moment - Date.now() - skew) / 1000) : kind === "clock" ? clock(moment) : absolute(moment);
      if (each.textContent !== text) each.textContent = text;
      if (each.title !== absolute(moment)) each.title = absolute(moment);
    }
    for (const each of all("[data-utc] span")) if (each.textContent !== zone()) each.textContent = zone();
    for (const each of all("svg[data-until]", root)) {
      const left = (new Date(each.dataset.until) - Date.now() - skew) / 1000 / Number(each.dataset.of);
      each.firstElementChild.setAttribute("width", `${Math.max(0, Math.min(1, left)) * 100}%`);
      each.classList.toggle("low", left < 0.2);
    }
  }
  setInterval(() => document.hidden || times(), 1000);

  // ── copying, notices, dialogs ──

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without https there is no clipboard; the older command still works.
      const box = document.createElement("textarea");
      box.value = text;
      ($("dialog[open]") || document.body).append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    toast(document.body.dataset.copied);
  }

  function toast(text, bad = false) {
    const place = document.getElementById("toasts");
    const line = document.createElement("p");
    line.className = bad ? "toast bad" : "toast";
    line.textContent = text;
    place.append(line);
    setTimeout(() => line.remove(), bad ? 9000 : 4500);
  }

  const dialog = document.getElementById("dialog");
  function openDialog() {
    if (dialog && !dialog.open) dialog.showModal();
    $("[autofocus]", dialog)?.focus();
  }

  function cookie(name, value) {
    const path = new URL(".", location.href).pathname;
    document.cookie = `${name}=${encodeURIComponent(value)}; path=${path}; max-age=31536000; samesite=lax`;
  }

  function toggleTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    cookie("onerow_theme", root.dataset.theme);
    dispatchEvent(new Event("onerow:theme"));
  }

  function toggleUtc() {
    utc = !utc;
    localStorage.setItem("onerow-utc", utc ? "1" : "0");
    times();
    toast(zone());
  }

  function decorate(root = document) {
    times(root);
    document.dispatchEvent(new CustomEvent("onerow:decorate", { detail: root }));
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-toggle], [data-close], [data-menu], [data-theme-button], [data-utc], #fresh");
    if (!target) return;
    if (target.id === "fresh") showHeld();
    else if ("copy" in target.dataset) copy(target.dataset.copy || document.getElementById(target.dataset.copyFrom).textContent);
    else if ("toggle" in target.dataset) {
      document.getElementById(target.dataset.target).classList.toggle(target.dataset.toggle);
      target.setAttribute("aria-pressed", String(target.getAttribute("aria-pressed") !== "true"));
    } else if ("close" in target.dataset && dialog?.open) {
      event.preventDefault();
      dialog.close();
    } else if ("menu" in target.dataset) {
      const on = document.getElementById("rail").classList.toggle("open");
      target.setAttribute("aria-expanded", String(on));
    } else if ("themeButton" in target.dataset) toggleTheme();
    else if ("utc" in target.dataset) toggleUtc();
  });
  document.addEventListener("click", (event) => {
    const rail = document.getElementById("rail");
    if (rail?.classList.contains("open") && !event.target.closest("#rail, [data-menu]")) rail.classList.remove("open");
  });
  document.addEventListener("htmx:after:swap", () => {
    const done = dialog && $("[data-done]", dialog);
    if (done) {
      toast(done.dataset.done, done.dataset.bad === "1");
      if (done.dataset.goto) location.href = done.dataset.goto;
      else {
        dialog.close();
        window.onerow.clearMarks?.();
      }
      done.remove();
    } else if (dialog?.firstElementChild) openDialog();
    decorate();
  });
  // The command line of a dialog has what is typed so far.
  let soon = 0;
  dialog?.addEventListener("input", ({ target: { form } }) => {
    clearTimeout(soon);
    if (form?.matches("#act-form")) soon = setTimeout(() => showCommand(form), 300);
  });
  async function showCommand(form) {
    const body = new URLSearchParams(new FormData(form));
    body.set("only_command", "1");
    try {
      const text = await (await fetch("act", { method: "POST", body, headers: { "HX-Request": "true" } })).text();
      const now = new DOMParser().parseFromString(text, "text/html").getElementById("act-command");
      if (now && form.isConnected) $("#act-command", form).replaceWith(document.importNode(now, true));
    } catch { /* the line stays as it was */ }
  }
  document.addEventListener("htmx:error", () => toast(document.body.dataset.unreachable, true));
  // The event comes later than the close: by then the next dialog may be open.
  dialog?.addEventListener("close", () => dialog.open || (dialog.textContent = ""));
  dialog?.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.addEventListener("DOMContentLoaded", () => { decorate(); showEnd(); });

  return { $, all, update, away, toast, copy, toggleTheme, toggleUtc, showHeld, openDialog, dialog, cookie, times };
})();
