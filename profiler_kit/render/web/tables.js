// Tables: windows on long ones, filters, sorting, copying as CSV.
const FILTERED_ROWS = 6; // shorter tables need no filter
const collator = new Intl.Collator("en", { numeric: true });

// Shows `items` as rows of a table in a scrolling element: `WINDOW` of them, around those in view. Margins
// take the place of the others.
function windowed(scroll, table, rowOf) {
  const body = table.tBodies[0];
  let items = [], first = 0, size = WINDOW;
  const show = (from) => {
    first = Math.max(0, Math.min(from, items.length - size));
    body.replaceChildren(...items.slice(first, first + size).map(rowOf));
    const high = items.length > size ? body.rows[0].offsetHeight : 0;
    table.style.marginTop = `${first * high}px`;
    table.style.marginBottom = `${high && (items.length - first - size) * high}px`;
    return high;
  };
  scroll.addEventListener("scroll", () => {
    if (items.length <= size) return;
    const wanted = Math.floor(scroll.scrollTop / body.rows[0].offsetHeight - (size - 20) / 2);
    if (Math.abs(Math.max(0, Math.min(wanted, items.length - size)) - first) > size / 4) show(wanted);
  });
  const all = (isAll) => { size = isAll ? Infinity : WINDOW; show(first); };
  windows.push(all);
  return {
    set(list, isNew = true) { items = list; show(isNew ? 0 : first); if (isNew) scroll.scrollTop = 0; },
    reveal(item) { const at = items.indexOf(item), high = show(at - size / 2); if (high) scroll.scrollTop = (at - 5) * high; },
  };
}

async function copy(text, control) {
  const label = control.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page from disk may lack the permission
    const area = create("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    control.focus();
  }
  control.textContent = "Copied";
  setTimeout(() => { control.textContent = label; }, 1500);
}

// A record has the `cells` of a row, each a text or a text and a number, and its `element` once it was shown.
const textOf = (cell) => (typeof cell === "string" ? cell : cell[0]);
const cellOf = ({ textContent, dataset }) => (dataset.sort === undefined ? textContent : [textContent, Number(dataset.sort)]);
const tableData = JSON.parse(document.getElementById("rows").textContent);

function recordsOf(scroll, table) {
  const records = [...table.tBodies[0].rows].map((element) => ({ element, cells: [...element.cells].map(cellOf) }));
  const { more, anchor } = scroll.dataset;
  for (const cells of more ? tableData[more] : []) records.push({ cells, id: anchor && anchor + records.length });
  return records;
}
function rowElement(record, columns) {
  return record.element ??= create("tr", record.id ? { id: record.id } : {}, ...record.cells.map((cell, i) => {
    const { className, dataset } = columns[i], written = textOf(cell), made = create("td", { className }, written);
    if (className === "name") made.title = written;
    if (cell !== written) made.dataset.sort = cell[1];
    if (cell !== written && dataset.share !== undefined && cell[1] >= 0 && cell[1] <= 100) made.style.setProperty("--share", `${cell[1]}%`);
    return made;
  }));
}

// The records as trees: one with more guides before its name than the one above is below it. Tables without guides are flat.
function nested(records) {
  const top = { depth: -1, children: [] }, path = [top];
  for (const record of records) {
    const depth = textOf(record.cells[0]).match(/^[│├└ ]*/)[0].length, node = { record, depth, children: [] };
    while (path.at(-1).depth >= depth) path.pop();
    path.at(-1).children.push(node);
    path.push(node);
  }
  return top.children;
}

// The largest number or the first name on top, among the records below one; `isAscending` reverses. Cells without a value stay at
// the end.
function sorted(records, column, isAscending) {
  const key = ({ cells: { [column]: cell } }) => (typeof cell !== "string" ? cell[1] : cell === "-" ? null : cell);
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
  const order = (a, b) => (a === null || b === null ? (a === null) - (b === null) : isAscending ? compare(a, b) : compare(b, a));
  const flat = (nodes) => nodes.sort((a, b) => order(key(a.record), key(b.record))).flatMap(({ record, children }) => [record, ...flat(children)]);
  return flat(nested(records));
}

function csv(columns, records, foot) {
  const line = (values) => values.map((value) => `"${String(value).replaceAll('"', '""')}"`).join(",");
  const values = ({ cells }) => cells.map((cell) => (typeof cell === "string" ? cell : cell[1]));
  const totals = [...(foot?.rows ?? [])].map((row) => ({ cells: [...row.cells].map(cellOf) }));
  return [line(columns.map(({ dataset }) => dataset.key)), ...[...records, ...totals].map((record) => line(values(record)))].join("\n");
}

function addTools(scroll) {
  const table = scroll.querySelector("table"), columns = [...table.tHead.rows[0].cells];
  let records = recordsOf(scroll, table), wanted = "";
  const isMatch = (record) => (record.text ??= record.cells.map(textOf).join(" ").toLowerCase()).includes(wanted);
  const shown = windowed(scroll, table, (record) => rowElement(record, columns));
  const matches = () => (wanted ? records.filter(isMatch) : records);
  const tools = create("div", { className: "tools" });
  // The caption is in one line with the tools; on paper it is in the table.
  tools.append(create("span", { className: "caption" }, table.caption?.textContent ?? ""));
  if (table.caption) table.caption.className = "paper";
  const label = `Filter ${records.length.toLocaleString("en")} rows`;
  const filter = named(create("input", { type: "search", placeholder: label }), label);
  filter.oninput = () => { wanted = filter.value.toLowerCase(); shown.set(matches()); };
  if (records.length >= FILTERED_ROWS) tools.append(filter);
  const control = button("Copy as CSV", () => copy(csv(columns, matches(), table.tFoot), control));
  tools.append(control);
  scroll.before(tools);
  if (records.length > WINDOW) shown.set(records);
  const sort = (heading) => {
    const before = heading.getAttribute("aria-sort");
    const isAscending = heading.classList.contains("number") ? before === "descending" : before !== "ascending";
    for (const cell of columns) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
    records = sorted(records, heading.cellIndex, isAscending);
    shown.set(matches());
  };
  if (records.length > 1) for (const cell of columns) {
    cell.replaceChildren(create("button", { type: "button", onclick: () => sort(cell) }, ...cell.childNodes));
  }
  // A link to a row shows it, whatever is filtered.
  rowFinders.push((id) => {
    const record = records.find((one) => (one.element?.id || one.id) === id);
    if (!record) return null;
    filter.value = wanted = "";
    shown.set(records, false);
    shown.reveal(record);
    return record.element;
  });
}
