// The keyboard: keys for pages, for the rows of a list and for acts; the palette; completion in the search box.
"use strict";
(() => {
  const { $, all } = window.onerow;
  const pages = { o: "overview", b: "board", t: "tasks", f: "failures", w: "workers", s: "schedules", e: "events", p: "phases", x: "operations", d: "waiting", y: "system" };
  let sequence = "";
  let lastMarked = null;

  const rows = () => all("[data-list] > [data-row]");
  const current = () => $("[data-list] > .at");

  function move(by) {
    const list = rows();
    if (!list.length) return;
    const at = list.indexOf(current());
    const next = list[Math.max(0, Math.min(list.length - 1, at < 0 ? 0 : at + by))];
    list[at]?.classList.remove("at");
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest" });
    const link = $("a", next);
    link?.focus({ preventScroll: true });
  }

  const box = (row) => row && $("input[type=checkbox]", row);

  function mark(row, range) {
    const checkbox = box(row);
    if (!checkbox) return;
    const on = !checkbox.checked;
    const list = rows();
    const [from, to] = [list.indexOf(range && lastMarked ? lastMarked : row), list.indexOf(row)].sort((a, b) => a - b);
    for (const each of list.slice(from, to + 1)) box(each).checked = range ? true : on;
    lastMarked = row;
    marks();
  }

  function marks() {
    const chosen = all("[data-list] input[type=checkbox]:checked");
    for (const row of rows()) row.setAttribute("aria-selected", String(!!box(row)?.checked));
    const bar = document.getElementById("bulk");
    if (!bar) return;
    const everything = bar.dataset.all === "1";
    bar.hidden = !chosen.length && !everything;
    const text = $("#bulk-count");
    text.textContent = (everything ? text.dataset.all : text.dataset.some).replace("{n}", chosen.length);
    for (const each of all("[data-bulk]", bar)) {
      const query = new URLSearchParams(each.dataset.bulk);
      if (everything) query.set("q", bar.dataset.query);
      else for (const { value } of chosen) query.append("id", value);
      each.setAttribute("hx-get", `act?${query}`);
      each.href = `act?${query}`;
    }
  }

  function everything() {
    const bar = document.getElementById("bulk");
    if (!bar) return;
    bar.dataset.all = bar.dataset.all === "1" ? "" : "1";
    for (const row of rows()) if (box(row)) box(row).checked = bar.dataset.all === "1";
    marks();
  }

  window.onerow.clearMarks = () => {
    const bar = document.getElementById("bulk");
    if (bar) bar.dataset.all = "";
    for (const each of all("[data-list] input:checked")) each.checked = false;
    if (bar) marks();
  };

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-list] input[type=checkbox]")) {
      const bar = document.getElementById("bulk");
      if (bar) bar.dataset.all = "";
      lastMarked = event.target.closest("[data-row]");
      marks();
    }
    if (event.target.matches("[data-mark-all]")) {
      document.getElementById("bulk").dataset.all = "";
      for (const row of rows()) if (box(row)) box(row).checked = event.target.checked;
      marks();
    }
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-everything]")) everything();
    if (event.target.closest("[data-clear-marks]")) window.onerow.clearMarks();
    const row = event.target.closest("[data-row]");
    if (row && event.shiftKey && event.target.matches("input[type=checkbox]") && lastMarked && lastMarked !== row) {
      event.target.checked = !event.target.checked;
      mark(row, true);
    }
  });
  document.addEventListener("onerow:decorate", () => document.getElementById("bulk") && marks());

  function press(key) {
    const bar = document.getElementById("bulk");
    const button = all(`[data-key="${CSS.escape(key)}"]`).find((each) => !each.disabled && each.offsetParent);
    const row = current();
    const act = bar && all("[data-bulk]", bar).find((each) => each.dataset.key === key);
    if (act && bar.hidden && row && box(row)) {
      box(row).checked = true;
      marks();
      act.click();
      return true;
    }
    if (!button) return false;
    if (button.matches("input, select, textarea")) button.focus();
    else button.click();
    return true;
  }

  // A letter is upper case with Shift only, whatever Caps Lock says, and the one on the key if a language types another.
  function keyOf({ key, code, shiftKey }) {
    const letter = /^[a-z]$/i.test(key) ? key : /^[^\x00-\x7f]$/.test(key) && /^Key([A-Z])$/.exec(code)?.[1];
    return letter ? (shiftKey ? letter.toUpperCase() : letter.toLowerCase()) : key;
  }

  document.addEventListener("keydown", (event) => {
    const key = keyOf(event);
    if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") {
      event.preventDefault();
      return palette();
    }
    if (event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
      if (key === "Escape") event.target.blur();
      if (key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form?.requestSubmit();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || window.onerow.dialog?.open) return;
    if (sequence === "g") {
      sequence = "";
      const link = pages[key] && $(`.nav a[data-page="${pages[key]}"]`);
      if (link) {
        event.preventDefault();
        location.href = link.href;
      }
      return;
    }
    const row = current();
    const known = {
      g: () => { sequence = "g"; setTimeout(() => (sequence = ""), 1200); },
      "/": () => $("#q").focus(),
      "?": () => $("#help-button").click(),
      j: () => move(1),
      k: () => move(-1),
      ArrowDown: () => rows().length ? move(1) : false,
      ArrowUp: () => rows().length ? move(-1) : false,
      x: () => row && mark(row, false),
      X: () => row && mark(row, true),
      a: () => document.getElementById("bulk") ? everything() : false,
      o: () => row ? $("a", row)?.click() : false,
      ".": () => window.onerow.showHeld() || window.onerow.toggleLive?.(),
      u: window.onerow.toggleUtc,
      t: window.onerow.toggleTheme,
      Escape: () => {
        if (document.getElementById("bulk") && !document.getElementById("bulk").hidden) window.onerow.clearMarks();
        else if ($("[data-back]")) $("[data-back]").click();
      },
    };
    if (known[key] ? known[key]() !== false : press(key)) event.preventDefault();
  });

  // ── palette ──

  function palette() {
    const template = document.getElementById("palette");
    const { dialog } = window.onerow;
    if (dialog.open) return dialog.close();
    dialog.replaceChildren(template.content.cloneNode(true));
    window.onerow.openDialog();
    const [input, list] = [$("input", dialog), $("ul", dialog)];
    const choices = all(".nav a, .lanes-nav a, .acts a, .acts button");
    const nameOf = (each) => (each.dataset.name || each.firstChild.textContent).trim();
    let chosen = 0;
    const draw = () => {
      const text = input.value.toLowerCase();
      const found = choices.filter((each) => nameOf(each).toLowerCase().includes(text)).slice(0, 12);
      chosen = Math.min(chosen, Math.max(0, found.length - 1));
      list.replaceChildren(...found.map((each, number) => {
        const item = document.createElement("li");
        item.role = "option";
        item.id = `choice-${number}`;
        item.textContent = nameOf(each);
        item.setAttribute("aria-selected", String(number === chosen));
        item.onclick = () => { dialog.close(); each.click(); };
        return item;
      }));
      input.setAttribute("aria-activedescendant", found.length ? `choice-${chosen}` : "");
    };
    input.oninput = () => { chosen = 0; draw(); };
    input.onkeydown = (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        chosen = Math.max(0, chosen + (event.key === "ArrowDown" ? 1 : -1));
        draw();
      }
      if (event.key === "Enter") {
        event.preventDefault();
        list.children[chosen]?.click();
      }
    };
    draw();
  }

  // ── completion in the search box ──

  const search = $("#q");
  const list = $("#completions");
  if (!search || !list) return;
  let request = 0;
  let picked = -1;
  const options = () => all("[role=option]", list);

  function close() {
    list.textContent = "";
    picked = -1;
    search.setAttribute("aria-expanded", "false");
    search.removeAttribute("aria-activedescendant");
  }

  function pick(number) {
    const found = options();
    picked = (number + found.length) % found.length;
    found.forEach((each, index) => each.setAttribute("aria-selected", String(index === picked)));
    search.setAttribute("aria-activedescendant", found[picked].id);
    found[picked].scrollIntoView({ block: "nearest" });
  }

  function take(option) {
    search.value = option.dataset.value;
    search.focus();
    search.setSelectionRange(search.value.length, search.value.length);
    if (search.value.endsWith(":") || search.value.endsWith(".")) ask();
    else close();
  }

  async function ask() {
    const mine = ++request;
    const query = new URLSearchParams({ q: search.value, at: search.selectionStart });
    try {
      const answer = await fetch(`complete?${query}`);
      if (mine !== request || document.activeElement !== search || !answer.ok) return;
      list.innerHTML = await answer.text();
      picked = -1;
      search.setAttribute("aria-expanded", String(options().length > 0));
    } catch { /* the store may be unavailable; typing goes on without completions */ }
  }

  let soon = 0;
  search.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(ask, 90); });
  search.addEventListener("focus", ask);
  search.addEventListener("blur", () => setTimeout(close, 150));
  search.addEventListener("keydown", (event) => {
    if (!options().length) return;
    if (event.key === "ArrowDown") { event.preventDefault(); pick(picked + 1); }
    if (event.key === "ArrowUp") { event.preventDefault(); pick(picked - 1); }
    if (event.key === "Tab" && (picked >= 0 || options().length === 1)) { event.preventDefault(); take(options()[Math.max(0, picked)]); }
    if (event.key === "Enter" && picked >= 0) { event.preventDefault(); take(options()[picked]); }
    if (event.key === "Escape") close();
  });
  list.addEventListener("mousedown", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) { event.preventDefault(); take(option); }
  });
})();
