// The panel with the facts of one case, and keyboard navigation of the matrix.
"use strict";
const panel = document.getElementById("panel");
let openId = ""; // of the case that the panel is about

function show(value, unit = "") {
  if (value === null) return "not measured";
  return (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : `${value}`) + unit;
}

function facts(found) {
  const pairs = [
    ["verdict", `${found.verdict.glyph} ${found.verdict.name}: ${found.verdict.means}`],
    ["standing", found.expected ? (found.known ? `known defect ${found.known}${found.mended ? (["exact", "tie"].includes(found.verdict.name) ? ", run only with it mended" : ", right once mended") : ""}` : "as expected") : "not expected"],
    ["largest difference", show(found.difference, " nats")],
    ["noise", show(found.noise, " nats")],
    ["difference over noise", show(found.ratio)],
    ["time", show(found.seconds, " s")],
  ];
  if (found.what) pairs.push(["first finding", found.what]);
  return make("dl", {}, ...pairs.flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, v)]));
}

function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

// Where a page may not write to the clipboard, the text is selected for the reader to copy.
async function copyText(element, button) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(element);
    button.textContent = "Selected";
  }
}

function section(found) {
  const rerun = `conformance show ${quoted(found.id)}`;
  const code = make("code", {}, rerun);
  const copy = make("button", { type: "button" }, "Copy");
  copy.addEventListener("click", () => copyText(code, copy));
  const parts = [facts(found), make("p", { class: "command" }, code, copy)];
  if (found.page) parts.unshift(make("p", {}, make("a", { href: found.page }, "All about this case")));
  return parts;
}

function closePanel() {
  panel.hidden = true;
  openId = "";
  table.querySelector("[aria-selected]")?.removeAttribute("aria-selected");
}

// Fills the panel with all cases of a cell (one for each seed).
function fill(row, column) {
  const cases = row.cells[column].map((_, index) => caseOf(row, column, index));
  const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "\u00d7");
  close.addEventListener("click", () => leave());
  const title = make("h2", { id: "panel-title" }, `${row.family} \u00b7 ${data.scenarios[column]}`);
  panel.replaceChildren(close, title, make("p", { class: "quiet" }, `${row.engine}, ${row.dtype}`));
  for (const found of cases) {
    if (cases.length > 1) panel.append(make("h3", {}, `seed ${found.seed}`));
    panel.append(...section(found));
  }
  closePanel();
  panel.hidden = false;
  openId = cases[0].id;
  row.tds[column].setAttribute("aria-selected", "true");
  panel.scrollIntoView({ block: "nearest" }); // in a narrow window it is below the table
}

function openCell(td, focus) {
  const row = data.rows[td.parentElement.dataset.row];
  const column = row.tds.indexOf(td);
  if (column < 0 || !row.cells[column]) return;
  fill(row, column);
  remember();
  if (focus) panel.focus();
}

// By its id, as an address names it; every seed of the cell has one.
function openCase(id) {
  for (const row of data.rows) {
    if (!id.startsWith(`${row.engine}/${row.family}/`)) continue;
    for (let column = 0; column < row.cells.length; column += 1) {
      const seeds = row.cells[column] ?? [];
      if (!seeds.some((_, index) => caseOf(row, column, index).id === id)) continue;
      fill(row, column);
      openId = id;
      row.element.hidden = false;
      rove(row.tds[column]);
      row.tds[column].scrollIntoView({ block: "center", inline: "center" });
      return;
    }
  }
  closePanel();
  status.textContent = `There is no case ${id} in this report.`;
}

// Back to the cell that the panel was about.
function leave() {
  const cell = table.querySelector("[aria-selected]");
  closePanel();
  remember();
  (cell ?? current)?.focus();
}

// Keys: one stop for Tab, arrows inside ----------------------------------------------------------

let current = null;

function rove(cell) {
  if (current) current.tabIndex = -1;
  current = cell;
  current.tabIndex = 0;
}

const stop = (cell) => (cell?.tagName === "TH" && cell.querySelector("button")) || cell;
const visible = (items) => [...items].filter((item) => !item.hidden && item.offsetParent !== null);

function target(cell, key, far) {
  const row = cell.closest("tr");
  const cells = visible(row.cells);
  const at = cells.indexOf(cell.closest("td, th"));
  if (key === "ArrowLeft") return cells[at - 1];
  if (key === "ArrowRight") return cells[at + 1];
  const rows = visible(table.rows);
  if (key === "Home" || key === "End") {
    const side = far ? visible(rows.at(key === "Home" ? 0 : -1).cells) : cells;
    return side.at(key === "Home" ? 0 : -1);
  }
  const jump = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[key];
  if (!jump) return null;
  const next = Math.min(Math.max(rows.indexOf(row) + jump, 0), rows.length - 1);
  return visible(rows[next].cells)[at];
}

table.addEventListener("keydown", (event) => {
  const cell = stop(target(event.target, event.key, event.ctrlKey || event.metaKey));
  if (cell) {
    event.preventDefault();
    rove(cell);
    cell.focus();
  } else if ((event.key === "Enter" || event.key === " ") && event.target.tagName === "TD") {
    event.preventDefault();
    openCell(event.target, true);
  }
});
table.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-sort]");
  if (button) {
    filters.elements.sort.value = button.dataset.sort;
    rove(button);
    apply();
  } else if (event.target.tagName === "TD") {
    rove(event.target);
    openCell(event.target, false);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !panel.hidden) leave();
});
filters.addEventListener("input", apply);
filters.addEventListener("reset", () => setTimeout(apply));
filters.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", readAddress);

makeTable();
rove(stop(table.rows[0].cells[0]));
readAddress();
document.documentElement.dataset.ready = Math.round(performance.now()); // all handlers are there
