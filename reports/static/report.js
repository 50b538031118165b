/* Makes the report interactive: the case table with filters and pages, the copy buttons, the theme and the chart.
   Strings of records are untrusted and reach the page as text nodes only. Nothing here uses the network. */
"use strict";
(async () => {
  const PAGE = 50;
  const byId = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };

  // Copying and the theme need no data, so they work even where it cannot be unpacked.
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed for files in some browsers */ }
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    event.stopPropagation();
    button.textContent = (await copy(button.dataset.copy)) ? "copied" : "select it";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  const dark = () => {
    const chosen = document.documentElement.style.colorScheme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const theme = byId("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.style.colorScheme = dark() ? "light" : "dark";
    drawCharts();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts());

  const unpack = async () => {
    const bytes = Uint8Array.from(atob(byId("data").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  let data = null;
  try { data = await unpack(); } catch (error) {
    byId("status").append(` The rest needs a browser of 2023 or later (${error.name}).`);
    return;
  }
  const { strings, ledgers, columns, reasons, outcomes } = data;
  const signs = Object.fromEntries(Object.keys(outcomes).map((word) => [word, null]));

  // The charts.
  async function drawCharts() {
    if (!data || typeof vegaEmbed === "undefined") return;
    const style = getComputedStyle(document.body);
    const probe = make("span", { style: "color:var(--line);background:var(--soft)" });
    document.body.append(probe);
    const line = getComputedStyle(probe).color;
    const soft = getComputedStyle(probe).backgroundColor;
    probe.remove();
    const config = {
      font: style.fontFamily,
      axis: { labelColor: soft, titleColor: soft, gridColor: line, tickColor: line, domainColor: line, labelFontSize: 11, titleFontSize: 12, titleFontWeight: "normal" },
      legend: { labelColor: style.color, labelFontSize: 12, symbolSize: 90 },
    };
    config.axisY = { labelLimit: document.body.clientWidth < 700 ? 160 : 520 };
    config.header = { labelColor: style.color, labelFontSize: 12, labelFontWeight: 600 };
    for (const [id, chart] of Object.entries(data.charts)) {
      await vegaEmbed(`#${id}`, chart, {
        mode: "vega-lite", renderer: "svg", ast: true, config, theme: dark() ? "dark" : undefined,
        actions: { export: true, source: false, compiled: false, editor: false },
      });
    }
  }

  // The case table.
  const total = columns.case.length;
  const parts = columns.case.map((number) => {
    const found = strings[number].split("/");
    return found.length === 5 ? { model: found[0], attention: found[3], mapping: found[4] } : { model: "no model", attention: "no model", mapping: "no model" };
  });
  const word = (column, row) => strings[columns[column][row]];
  const measure = (row, name) => {
    const list = columns.measures[row];
    for (let i = 0; i < list.length; i += 2) if (strings[list[i]] === name) return list[i + 1];
    return undefined;
  };
  const figure = (value) => {
    if (Array.isArray(value)) return strings[value[0]];
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) && Math.abs(value) < 1e9 ? value.toLocaleString("en") : value.toPrecision(3);
  };
  const speedOf = (row) => (word("speed", row) ? positive(measure(row, "ratio")) : null);
  const positive = (value) => (typeof value === "number" && value > 0 && value < 1e9 ? value : null);
  const interval = (row) => {
    const low = positive(measure(row, "low")), high = positive(measure(row, "high"));
    return low !== null && high !== null ? `${low.toFixed(3)} to ${high.toFixed(3)}` : "no interval";
  };
  const keyFigure = (row) => {
    const speed = word("speed", row), ratio = measure(row, "ratio"), error = measure(row, "error_ratio"), limit = measure(row, "limit");
    if (speed) return speedOf(row) === null ? speed : `${ratio.toFixed(3)}× (${interval(row)}) ${speed}`;
    if (word("determinism", row)) return word("determinism", row);
    if (typeof error === "number") return typeof limit === "number" ? `${figure(error)} of ${figure(limit)}` : figure(error);
    return typeof ratio === "number" ? `${figure(ratio)}×` : "";
  };
  const pill = (outcome) => {
    const known = document.querySelector(`.key .o-${CSS.escape(outcome)}`);
    if (known && !signs[outcome]) signs[outcome] = known.cloneNode(true);
    return signs[outcome] ? signs[outcome].cloneNode(true) : make("span", { class: `pill o-${outcome}` }, outcome);
  };
  const command = (text) => text ? make("span", { class: "command" }, make("code", { title: text }, text),
    make("button", { type: "button", class: "copy", "data-copy": text, "aria-label": "Copy the command" }, "copy")) : "";

  const haystacks = new Array(total);
  const haystack = (row) => haystacks[row] ??= ["case", "property", "phase", "outcome", "reason", "message", "speed", "determinism"]
    .map((column) => word(column, row)).join(" ").toLowerCase();

  const state = { search: "", outcome: "", property: "", model: "", mapping: "", attention: "", order: "worst" };
  let shown = [], page = 0;
  const fill = (id, values, first) => {
    const options = [...new Set(values)].sort().slice(0, 500);
    byId(id).replaceChildren(make("option", { value: "" }, first), ...options.map((value) => make("option", { value }, value)));
  };
  const count = new Map();
  for (const number of columns.outcome) count.set(strings[number], (count.get(strings[number]) || 0) + 1);
  byId("outcome").replaceChildren(make("option", { value: "" }, "all"),
    ...[...count].map(([value, number]) => make("option", { value }, `${value} (${number.toLocaleString("en")})`)));
  fill("property", columns.property.map((number) => strings[number]), "all");
  for (const axis of ["model", "mapping", "attention"]) fill(axis, parts.map((part) => part[axis]), "all");

  const orders = {
    worst: null, // The records come in this order.
    case: (a, b) => (word("case", a) < word("case", b) ? -1 : word("case", a) > word("case", b) ? 1 : a - b),
    seconds: (a, b) => columns.seconds[b] - columns.seconds[a],
    speed: (a, b) => (speedOf(b) ?? -1) - (speedOf(a) ?? -1),
    slow: (a, b) => (speedOf(a) ?? 1e12) - (speedOf(b) ?? 1e12),
  };

  const apply = () => {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    shown = [];
    for (let row = 0; row < total; row++) {
      if (state.outcome && word("outcome", row) !== state.outcome) continue;
      if (state.property && word("property", row) !== state.property) continue;
      if (state.model && parts[row].model !== state.model) continue;
      if (state.mapping && parts[row].mapping !== state.mapping) continue;
      if (state.attention && parts[row].attention !== state.attention) continue;
      if (words.length && !words.every((part) => haystack(row).includes(part))) continue;
      shown.push(row);
    }
    if (orders[state.order]) shown.sort(orders[state.order]);
    page = 0;
    draw();
    // The address keeps the filter, so that a link can point at one cell.
    const kept = Object.entries(state).filter(([name, value]) => value && !(name === "order" && value === "worst"));
    if (kept.length || location.hash.startsWith("#cases?")) {
      try { history.replaceState(null, "", kept.length ? `#cases?${new URLSearchParams(kept)}` : "#cases"); } catch { /* refused for some files */ }
    }
  };
  const draw = () => {
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    byId("rows").replaceChildren(...shown.slice(page * PAGE, (page + 1) * PAGE).map(tableRow));
    byId("status").textContent = `${shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} records.`;
    byId("page").textContent = `page ${page + 1} of ${pages}`;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page + 1 >= pages;
    byId("pages").hidden = pages === 1;
  };
  const tableRow = (row) => {
    const toggle = make("button", { type: "button", class: "toggle id", "aria-expanded": "false" }, word("case", row));
    const reason = word("reason", row), message = word("message", row), phase = word("phase", row);
    const line = make("tr", { class: "row" },
      make("td", {}, pill(word("outcome", row))),
      make("td", {}, toggle, message ? make("br") : null, message ? make("span", { class: "soft" }, message.length > 140 ? `${message.slice(0, 140)}…` : message) : null),
      make("td", {}, word("property", row) + (phase ? ` · ${phase}` : "")),
      make("td", {}, reason ? make("code", { title: reasons[reason] }, reason) : ""),
      make("td", { class: "number" }, keyFigure(row)),
      make("td", { class: "number" }, columns.seconds[row].toFixed(2)),
      make("td", {}, command(word("repro", row))));
    line.addEventListener("click", (event) => {
      if (event.target.closest(".copy") || String(getSelection())) return;
      const open = toggle.getAttribute("aria-expanded") === "true";
      toggle.setAttribute("aria-expanded", String(!open));
      if (open) line.nextElementSibling.remove(); else line.after(details(row));
    });
    return line;
  };
  const details = (row) => {
    const cell = make("td", { colspan: "7" });
    const outcome = word("outcome", row), reason = word("reason", row);
    cell.append(make("p", {}, pill(outcome), ` ${outcomes[outcome]} `, reason ? make("code", {}, reason) : "", reason ? ` ${reasons[reason]}` : ""));
    if (word("message", row)) cell.append(make("h4", {}, "message"), make("pre", {}, word("message", row)));
    const entries = ledgers[columns.evidence[row]];
    if (entries.length) {
      cell.append(make("h4", {}, "ledger"), make("div", { class: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ...["name", "promised", "resolved", "bound / modules", "calls", "reason", "detail", "digest"].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...entries.slice(0, 60).map(([name, promised, resolved, modules, bound, calls, why, said, digest]) => make("tr", {},
          make("th", { scope: "row" }, strings[name]), make("td", {}, make("code", {}, strings[promised])), make("td", {}, make("code", {}, strings[resolved] || "–")),
          make("td", {}, `${bound} / ${modules}`), make("td", {}, String(calls)), make("td", {}, strings[why]), make("td", {}, strings[said]), make("td", {}, make("code", {}, strings[digest].slice(0, 26)))))))));
    }
    const list = columns.measures[row];
    if (list.length) {
      const found = [];
      for (let i = 0; i < list.length; i += 2) found.push(make("div", {}, make("dt", {}, strings[list[i]]), make("dd", {}, figure(list[i + 1]))));
      cell.append(make("h4", {}, "measures"), make("dl", {}, ...found));
    }
    for (const name of ["requirements", "shims"]) {
      if (columns[name][row].length) cell.append(make("h4", {}, name), make("p", {}, ...columns[name][row].flatMap((number) => [make("code", {}, strings[number]), " "])));
    }
    if (word("repro", row)) cell.append(make("h4", {}, "reproduce"), command(word("repro", row)));
    return make("tr", { class: "more" }, cell);
  };

  const show = () => {
    for (const [name, value] of Object.entries(state)) byId(name).value = value;
    apply();
  };
  const clear = () => Object.assign(state, { search: "", outcome: "", property: "", model: "", mapping: "", attention: "", order: "worst" });
  const jump = (wanted) => { clear(); Object.assign(state, wanted); show(); byId("cases").scrollIntoView({ behavior: "smooth" }); };
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.search = event.target.value; apply(); }, 150);
  });
  for (const name of ["outcome", "property", "model", "mapping", "attention", "order"]) {
    byId(name).addEventListener("change", (event) => { state[name] = event.target.value; apply(); });
  }
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", (event) => { event.preventDefault(); clear(); show(); });
  byId("previous").addEventListener("click", () => { page -= 1; draw(); });
  byId("next").addEventListener("click", () => { page += 1; draw(); });
  for (const chip of document.querySelectorAll(".chip")) chip.addEventListener("click", () => jump({ outcome: chip.dataset.outcome }));
  for (const cell of document.querySelectorAll("button.cell")) {
    cell.addEventListener("click", () => jump({ model: cell.dataset.model, [cell.dataset.axis]: cell.dataset.value }));
  }
  byId("filters").hidden = false;
  if (location.hash.startsWith("#cases?")) {
    for (const [name, value] of new URLSearchParams(location.hash.slice(7))) if (name in state) state[name] = value;
    if (!(state.order in orders)) state.order = "worst";
  }
  show();
  await drawCharts();
  document.documentElement.dataset.ready = "true";
})();
