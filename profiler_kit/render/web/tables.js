// Tables: filters, sorting, copying as CSV.
const FILTERED_ROWS = 6; // shorter tables need no filter
const collator = new Intl.Collator("en", { numeric: true });

function csv(table) {
  const quoted = (cell) => `"${(cell.dataset.key ?? cell.dataset.sort ?? cell.textContent).replaceAll('"', '""')}"`;
  return [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(quoted).join(",")).join("\n");
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

// The rows as trees: a row with more guides before its name than the one above is below it. Tables without guides are flat.
function nested(rows) {
  const top = { depth: -1, children: [] }, path = [top];
  for (const row of rows) {
    const depth = row.cells[0].textContent.match(/^[│├└ ]*/)[0].length, node = { row, depth, children: [] };
    while (path.at(-1).depth >= depth) path.pop();
    path.at(-1).children.push(node);
    path.push(node);
  }
  return top.children;
}

// The largest number or the first name on top, among the rows below one; a second press reverses. Cells without a value stay at the
// end.
function sort(table, heading) {
  const before = heading.getAttribute("aria-sort");
  const ascending = heading.classList.contains("number") ? before === "descending" : before !== "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const keys = new Map([...table.tBodies[0].rows].map((row) => {
    const { dataset, textContent } = row.cells[heading.cellIndex];
    return [row, dataset.sort !== undefined ? Number(dataset.sort) : textContent === "-" ? null : textContent];
  }));
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
  const order = (a, b) => (a === null || b === null ? (a === null) - (b === null) : ascending ? compare(a, b) : compare(b, a));
  const flat = (nodes) => nodes.sort((a, b) => order(keys.get(a.row), keys.get(b.row))).flatMap(({ row, children }) => [row, ...flat(children)]);
  table.tBodies[0].append(...flat(nested(keys.keys())));
}

function addTools(scroll) {
  const table = scroll.querySelector("table"), rows = [...table.tBodies[0].rows];
  const tools = create("div", { className: "tools" });
  // The caption is in one line with the tools; on paper it is in the table.
  tools.append(create("span", { className: "caption" }, table.caption?.textContent ?? ""));
  if (table.caption) table.caption.className = "paper";
  if (rows.length >= FILTERED_ROWS) {
    const label = `Filter ${rows.length.toLocaleString("en")} rows`, texts = [];
    const filter = named(create("input", { type: "search", placeholder: label }), label);
    filter.oninput = () => {
      const wanted = filter.value.toLowerCase();
      rows.forEach((row, i) => { row.hidden = !(texts[i] ??= row.textContent.toLowerCase()).includes(wanted); });
    };
    tools.append(filter);
  }
  const control = button("Copy as CSV", () => copy(csv(table), control));
  tools.append(control);
  scroll.before(tools);
  if (rows.length > 1) for (const cell of table.tHead.rows[0].cells) {
    cell.replaceChildren(create("button", { type: "button", onclick: () => sort(table, cell) }, ...cell.childNodes));
  }
}
