// Tables: filters, sorting by keyboard, copying as CSV.
const FILTERED_ROWS = 6; // shorter tables need no filter

function csv(table) {
  const quoted = (cell) => `"${(cell.dataset.sort ?? cell.textContent).replaceAll('"', '""')}"`;
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

function addTools(scroll) {
  const table = scroll.querySelector("table"), rows = [...table.tBodies[0].rows];
  const tools = create("div", { className: "tools" });
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
  // The library sorts on a click on a heading; a button in it makes that work by keyboard.
  if (rows.length > 1) for (const cell of table.tHead.rows[0].cells) cell.replaceChildren(create("button", { type: "button" }, ...cell.childNodes));
  else table.classList.remove("sortable");
}
