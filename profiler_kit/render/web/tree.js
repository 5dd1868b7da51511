// The modules of both sides of a comparison in one tree that folds. Rows of folded modules are made when they are unfolded.
const MAX_UNFOLDED = 30; // rows shown at first

draw.tree = function tree(element, data, tools) {
  const { nodes, figures, sides } = data, children = nodes.map(() => []), roots = [];
  nodes.forEach((node, i) => (node.parent < 0 ? roots : children[node.parent]).push(i));
  let key = figures[0].key, wanted = "", unfolded = new Set();
  const change = (i) => (nodes[i][key][1] ?? 0) - (nodes[i][key][0] ?? 0);
  const ordered = (list) => [...list].sort((i, j) => Math.abs(change(j)) - Math.abs(change(i)));

  const figure = named(create("select"), "Compared figure");
  for (const { title, key: name } of figures) figure.add(new Option(title, name));
  const search = named(create("input", { type: "search", placeholder: "Search modules" }), "Search modules");
  const changed = create("input", { type: "checkbox" });
  const fold = (all) => () => { unfolded = new Set(all ? nodes.keys() : []); show(); };
  tools.append(
    ...(figures.length > 1 ? [figure] : []), search, create("label", {}, changed, " only changes"), button("Unfold all", fold(true)), button("Fold all", fold(false)),
  );
  figure.onchange = () => { key = figure.value; show(); };
  search.oninput = () => { wanted = search.value.toLowerCase(); show(); };
  changed.onchange = () => show();

  const head = create("tr"), body = create("tbody");
  const scroll = named(create("div", { className: "scroll", tabIndex: 0 }, create("table", { className: "aligned" }, create("thead", {}, head), body)), "Aligned modules");
  scroll.setAttribute("role", "region");
  const shown = windowed(scroll, scroll.firstChild, (make) => make());
  element.replaceChildren(scroll);
  element.removeAttribute("role");
  element.removeAttribute("aria-label");

  // What a search or the filter selects, with the ancestors that lead there.
  function selection() {
    const selected = new Set();
    nodes.forEach((node, i) => {
      if ((wanted && !node.path.toLowerCase().includes(wanted)) || (changed.checked && node.status === "same" && !change(i))) return;
      for (let at = i; at >= 0 && !selected.has(at); at = nodes[at].parent) selected.add(at);
    });
    return selected;
  }
  function row(i, depth, most) {
    const node = nodes[i], { unit } = figures.find((one) => one.key === key), [a, b] = node[key], difference = change(i);
    const name = create("td", { className: "name", title: node.path });
    name.style.paddingLeft = `${0.5 + 1.1 * depth}rem`;
    const label = node.type ? create("span", { className: "type" }, cut(node.type, 40)) : "";
    if (children[i].length) {
      const toggle = button(node.name, () => { unfolded.has(i) ? unfolded.delete(i) : unfolded.add(i); show(false); body.querySelector(`[data-node="${i}"]`)?.focus(); }, { className: "fold" });
      toggle.dataset.node = i;
      toggle.setAttribute("aria-expanded", String(wanted !== "" || unfolded.has(i)));
      name.append(toggle, " ", label);
    } else name.append(create("span", { className: "leaf" }, node.name), " ", label);
    const cell = (value) => create("td", { className: "number" }, value == null ? "-" : text(value, unit));
    const bar = create("td", { className: "change" }, create("i"));
    bar.firstChild.className = difference > 0 ? "more" : "less";
    bar.firstChild.style.width = `${most ? (50 * Math.abs(difference)) / most : 0}%`;
    const status = create("span", { className: `status ${node.status}` }, node.status);
    return create("tr", {}, name, cell(a), cell(b), create("td", { className: "number" }, signed(difference, unit)), bar,
      create("td", {}, status), create("td", { className: "note", title: node.note }, cut(node.note, 120)));
  }
  function show(isNew = true) {
    head.replaceChildren(...["module", ...sides, "difference", "", "", "what changed"].map((title, i) =>
      create(title ? "th" : "td", { className: i > 0 && i < 4 ? "number" : "", scope: "col" }, cut(title, 40))));
    const selected = wanted || changed.checked ? selection() : null;
    const most = Math.max(...nodes.map((_, i) => Math.abs(change(i))));
    const rows = [];
    const add = (list, depth) => {
      for (const i of ordered(list)) {
        if (selected && !selected.has(i)) continue;
        rows.push(() => row(i, depth, most));
        if (wanted || unfolded.has(i)) add(children[i], depth + 1);
      }
    };
    add(roots, 0);
    shown.set(rows, isNew);
  }
  // At first, unfold level by level what differs, as long as it is short.
  let level = roots, count = roots.length;
  while (level.length) {
    const next = level.filter((i) => nodes[i].status !== "same" || change(i));
    const below = next.flatMap((i) => children[i]);
    if (count + below.length > MAX_UNFOLDED && level !== roots) break;
    next.forEach((i) => unfolded.add(i));
    count += below.length;
    level = below;
  }
  show();
  return () => {};
};
