// The matrix: made once from the page's JSON, then only shown and hidden. Texts go in as
// textContent, never as HTML. The address (after #) holds the filters and the open case.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const table = document.getElementById("matrix");
const filters = document.getElementById("filters");
const status = document.getElementById("status");

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Cells ------------------------------------------------------------------------------------------

// A case as an object; trailing fields without a value are left out of the data.
function caseOf(row, column, index = 0) {
  const values = row.cells[column][index];
  const found = Object.fromEntries(data.fields.map((name, i) => [name, values[i] ?? null]));
  found.verdict = data.verdicts[found.verdict];
  found.id = [row.engine, row.family, data.scenarios[column], row.dtype, found.seed].join("/");
  return found;
}

function makeCell(row, column) {
  if (row.cells[column] === 0) return make("td", { tabindex: "-1", "aria-label": "not run" }, "?");
  if (!row.cells[column]) return make("td", { tabindex: "-1", "aria-label": "none" });
  const [, verdict, expected] = row.cells[column][0];
  const mended = row.cells[column].every((one) => one[10] || one[1] < 2) && row.cells[column].some((one) => one[10]);
  const { name, glyph } = data.verdicts[verdict];
  const cell = make("td", {
    tabindex: "-1",
    class: `v-${name}${expected ? (mended ? " mended" : "") : " unexpected"}`,
    "aria-label": expected ? (mended ? `${name}, right once mended` : name) : `${name}, not expected`,
  });
  cell.textContent = expected ? (mended ? `${glyph}'` : glyph) : `${glyph}!`;
  return cell;
}

// What a narrow window shows below the family: the columns that it has no room for.
function lane(row) {
  const shown = ["engine", "dtype"].filter((key) => !table.classList.contains(`one-${key}`));
  return shown.map((key) => row[key]).join(" ");
}

function makeRow(row) {
  row.bad = row.cells.filter((cases) => cases && cases[0][1] > 1).length;
  row.worst = Math.max(...row.cells.map((c) => (c ? c[0][1] + (c[0][2] ? 0 : 100) : -1)));
  const about = [row.family, row.engine, row.dtype, row.module, ...row.caches, ...row.modalities];
  row.words = about.join(" ").toLowerCase();
  row.tds = row.cells.map((_, column) => makeCell(row, column));
  const tooltip = [row.module, row.caches.join(", "), row.modalities.join(", ")].join("\n");
  row.element = make(
    "tr",
    {},
    make("th", { scope: "row", title: tooltip, tabindex: "-1", "data-lane": lane(row) }, row.family),
    make("td", { class: "engine", tabindex: "-1" }, row.engine),
    make("td", { class: "dtype", tabindex: "-1" }, row.dtype),
    make("td", { class: "count", tabindex: "-1" }, `${row.bad}`),
    ...row.tds,
  );
  return row.element;
}

function header(label, sort, className) {
  const button = make("button", { type: "button", tabindex: "-1", "data-sort": sort }, label);
  return make("th", { scope: "col", class: className }, button);
}

function makeTable() {
  const heads = [
    header("family", "", "corner"),
    header("engine", "engine", "engine"),
    make("th", { scope: "col", class: "dtype", tabindex: "-1" }, "dtype"),
    header("not exact", "count", "upright count"),
    ...data.scenarios.map((name) => header(name, `s:${name}`, "upright scenario")),
  ];
  const body = make("tbody");
  body.append(...data.rows.map(makeRow));
  data.rows.forEach((row, index) => (row.element.dataset.row = index));
  table.append(make("thead", {}, make("tr", {}, ...heads)), body);
}

// Filters ----------------------------------------------------------------------------------------

function globbed(text) {
  const escaped = text.trim().replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replace(/\*/g, ".*").replace(/\?/g, ".")}$`, "i");
}

function wanted(verdict) {
  if (verdict === "unexpected") return (cases) => cases.some((one) => !one[2]);
  if (verdict === "unmended") return (cases) => cases.some((one) => one[7] && !one[10]);
  if (verdict === "bad") return (cases) => cases.some((one) => one[1] > 1);
  return (cases) => cases.some((one) => data.verdicts[one[1]].name === verdict);
}

function searchable(cases) {
  return (cases || []).map((one) => `${one[7] ?? ""} ${one[8] ?? ""}`).join(" ").toLowerCase();
}

// Whether a cell passes the filters: every word of the search occurs in the data of its row or of
// the cell, and the verdict is the selected one.
function matches(row, column, query, words) {
  const cases = row.cells[column];
  if (query.scenario && data.scenarios[column] !== query.scenario) return false;
  if ((query.verdict === "missing") !== (cases === 0) || cases === null) return false;
  if (cases && query.verdict && !wanted(query.verdict)(cases)) return false;
  if (words.every((word) => row.words.includes(word))) return true;
  const all = `${row.words} ${data.scenarios[column].toLowerCase()} ${searchable(cases)}`;
  return words.every((word) => all.includes(word));
}

function filter(query) {
  const words = query.q ? query.q.toLowerCase().split(/\s+/).filter(Boolean) : [];
  const family = query.family ? globbed(query.family) : null;
  let rows = 0;
  let cells = 0;
  for (const row of data.rows) {
    const here =
      (!family || family.test(row.family)) &&
      ["engine", "dtype"].every((key) => !query[key] || row[key] === query[key]) &&
      ["caches", "modalities"].every((key) => !query[key] || row[key].includes(query[key]));
    const hits = row.tds.map((_, column) => here && matches(row, column, query, words));
    const count = hits.filter(Boolean).length;
    row.element.hidden = count === 0;
    rows += count > 0;
    cells += count;
    row.tds.forEach((td, column) => {
      td.classList.toggle("faint", Boolean(row.cells[column]) && count > 0 && !hits[column]);
      td.hidden = Boolean(query.scenario) && data.scenarios[column] !== query.scenario;
    });
  }
  table.querySelectorAll("thead .scenario").forEach((th, column) => {
    th.hidden = Boolean(query.scenario) && data.scenarios[column] !== query.scenario;
  });
  status.textContent = `${rows} of ${data.rows.length} rows, ${cells} cases`;
}

// Sorting ----------------------------------------------------------------------------------------

function order(sort) {
  if (sort === "worst") return (a, b) => b.worst - a.worst;
  if (sort === "count") return (a, b) => b.bad - a.bad;
  if (sort === "engine") return (a, b) => (a.engine < b.engine ? -1 : a.engine > b.engine ? 1 : 0);
  const column = data.scenarios.indexOf(sort.slice(2));
  const badness = (row) => {
    const cases = row.cells[column];
    return cases ? cases[0][1] + (cases[0][2] ? 0 : 100) : -1;
  };
  return sort.startsWith("s:") ? (a, b) => badness(b) - badness(a) : () => 0;
}

function sortRows(sort) {
  if (sort === sortRows.last) return;
  sortRows.last = sort;
  const rows = [...data.rows].sort(order(sort));
  table.tBodies[0].append(...rows.map((row) => row.element));
  for (const button of table.querySelectorAll("thead button")) {
    const by = button.dataset.sort === sort;
    const direction = sort === "" || sort === "engine" ? "ascending" : "descending";
    if (by) button.parentElement.setAttribute("aria-sort", direction);
    else button.parentElement.removeAttribute("aria-sort");
  }
}

// The address ------------------------------------------------------------------------------------

function filterValues() {
  const found = {};
  for (const field of filters.elements) if (field.name && field.value) found[field.name] = field.value;
  return found;
}

function remember() {
  const found = new URLSearchParams(filterValues());
  if (openId) found.set("case", openId);
  history.replaceState(null, "", `#${found}`);
}

function apply() {
  const found = filterValues();
  filter(found);
  sortRows(found.sort || "");
  remember();
}

function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  for (const field of filters.elements) if (field.name) field.value = found.get(field.name) || "";
  for (const field of filters.elements) if (field.selectedIndex === -1) field.value = "";
  const open = found.get("case");
  filter(filterValues());
  sortRows(filterValues().sort || "");
  if (open) openCase(open);
  else closePanel();
}
