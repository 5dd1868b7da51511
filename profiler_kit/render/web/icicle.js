// The module tree as boxes: width by a figure, color by the share of the roofline or by class; zoom, search, keyboard.
draw.icicle = function icicle(element, data, chart, tools) {
  const nodes = data.nodes, children = nodes.map(() => []);
  nodes.forEach((node, i) => { if (node.parent >= 0) children[node.parent].push(i); });
  const top = nodes.findIndex((node) => node.parent < 0);
  const hasShares = nodes.some((node) => node.share != null);
  const classes = new Map();
  for (const { type } of nodes) { const name = type.split(" ")[0]; if (!classes.has(name)) classes.set(name, classes.size); }
  let key = data.sizes[0].key, coloring = hasShares ? "share" : "class", zoomed = top, current = top, wanted = "", boxes = [], focused = false;
  const ancestors = (i) => (i < 0 ? [] : [...ancestors(nodes[i].parent), i]);

  const size = named(create("select"), "Width of a module");
  for (const figure of data.sizes) size.add(new Option(`size: ${figure.title}`, figure.key));
  const color = named(create("select"), "Color of a module");
  if (hasShares) color.add(new Option("color: % of roofline", "share"));
  color.add(new Option("color: class", "class"));
  const search = named(create("input", { type: "search", placeholder: "Search modules" }), "Search modules");
  const matches = create("span", { className: "matches" });
  matches.setAttribute("role", "status");
  const scale = create("span", { className: "scale", title: "Share of the roofline" }, "0 %", create("i"), "100 %");
  const crumbs = named(create("nav", { className: "crumbs" }), "Zoomed module");
  tools.append(...(data.sizes.length > 1 ? [size] : []), ...(hasShares ? [color] : []), search, matches, scale, crumbs);
  size.onchange = () => { key = size.value; show(); };
  color.onchange = () => { coloring = color.value; show(); };
  const isMatch = (node) => !wanted || node.path.toLowerCase().includes(wanted) || node.type.toLowerCase().includes(wanted);
  search.oninput = () => {
    wanted = search.value.toLowerCase();
    matches.textContent = wanted ? `${nodes.filter(isMatch).length.toLocaleString("en")} of ${nodes.length.toLocaleString("en")}` : "";
    paint();
  };
  search.onkeydown = (event) => { // Enter zooms to the first match
    const first = event.key === "Enter" && wanted ? nodes.findIndex(isMatch) : -1;
    if (first >= 0) zoom(first);
  };

  function layout() {
    boxes = [];
    const place = (i, depth, left, width) => {
      boxes.push([left, depth, left + width, i]);
      const total = Math.max(nodes[i][key], children[i].reduce((sum, child) => sum + nodes[child][key], 0));
      let at = left;
      for (const child of children[i]) {
        const part = total ? (width * nodes[child][key]) / total : 0;
        if (part > 0.0004) place(child, depth + 1, at, part);
        at += part;
      }
    };
    place(zoomed, 0, 0, 1);
  }
  // The stronger the orange, the farther below the roofline; gray is unknown. Lightness differs too, for any color vision.
  function fill(node) {
    const dark = isDark();
    if (coloring === "class") return `hsl(${(classes.get(node.type.split(" ")[0]) * 67 + 205) % 360} ${dark ? 30 : 48}% ${dark ? 32 : 80}%)`;
    return node.share == null ? (dark ? "#3d4a5c" : "#c3ccd8") : `hsl(24 85% ${Math.round(dark ? 42 - 0.24 * Math.min(100, node.share) : 62 + 0.3 * Math.min(100, node.share))}%)`;
  }
  function describe(i) {
    const node = nodes[i];
    return [
      `<b>${short(node.path)}</b>`, short(node.type),
      ...data.sizes.filter((figure) => node[figure.key] != null).map((figure) =>
        `${figure.title} ${text(node[figure.key], figure.unit)} (${number((100 * node[figure.key]) / (nodes[top][figure.key] || 1))} %)`),
      node.share == null ? "" : `${number(node.share)} % of the roofline`,
    ].filter(Boolean).join("<br>");
  }
  function item(_, api) {
    const node = nodes[api.value(3)];
    const [x, y] = api.coord([api.value(0), api.value(1)]), [right, bottom] = api.coord([api.value(2), api.value(1) + 1]);
    const width = right - x - 1, isCurrent = focused && api.value(3) === current;
    return {
      type: "rect", shape: { x, y, width: Math.max(0.5, width), height: bottom - y - 1, r: 2 },
      style: { fill: fill(node), opacity: isMatch(node) ? 1 : 0.2, stroke: style("--text"), lineWidth: isCurrent ? 2 : 0 },
      textContent: width > 28 ? { style: { text: node.name, fill: style("--text"), opacity: isMatch(node) ? 1 : 0.4, width: width - 8, overflow: "truncate", fontSize: 12 } } : undefined,
      textConfig: { position: "insideLeft" },
    };
  }
  function paint() {
    const levels = 1 + boxes.reduce((most, box) => Math.max(most, box[1]), 0);
    scale.hidden = coloring !== "share";
    chart.setOption({
      ...frame(), grid: { left: 0, right: 0, top: 0, bottom: 0 },
      xAxis: { type: "value", min: 0, max: 1, show: false }, yAxis: { type: "value", min: 0, max: levels, inverse: true, show: false },
      series: [{ type: "custom", data: boxes, encode: { x: [0, 2], y: 1 }, clip: true, renderItem: item }],
      tooltip: tip(({ value }) => describe(value[3])),
    }, true);
  }
  function show() {
    layout();
    element.style.height = `${27 * Math.min(1 + Math.max(...boxes.map((box) => box[1])), 28)}px`;
    fit(chart);
    paint();
    crumbs.replaceChildren(...ancestors(zoomed).map((i) => {
      const crumb = button(nodes[i].name, () => zoom(i));
      if (i === zoomed) crumb.setAttribute("aria-current", "true");
      return crumb;
    }));
  }
  function zoom(i) {
    zoomed = current = i;
    show();
  }
  chart.on("click", ({ value }) => zoom(value[3] === zoomed && nodes[zoomed].parent >= 0 ? nodes[zoomed].parent : value[3]));
  zoomers.set(element, (path) => {
    const i = nodes.findIndex((node) => node.path === path);
    if (i >= 0) zoom(i);
  });

  // Arrows move between the visible boxes, Enter zooms in, Escape zooms out.
  function point(i) {
    const index = boxes.findIndex((box) => box[3] === i);
    if (index < 0) return;
    current = i;
    paint();
    chart.dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: index });
    element.setAttribute("aria-label", `Module ${nodes[i].path}, ${data.sizes.map((figure) => `${figure.title} ${text(nodes[i][figure.key], figure.unit)}`).join(", ")}`);
  }
  const drawn = (list) => list.filter((i) => boxes.some((box) => box[3] === i));
  function neighbor(step) {
    const siblings = current === zoomed ? [current] : drawn(children[nodes[current].parent]);
    return siblings[(siblings.indexOf(current) + step + siblings.length) % siblings.length];
  }
  element.tabIndex = 0;
  element.setAttribute("role", "application");
  element.setAttribute("aria-roledescription", "module tree");
  element.onfocus = () => { focused = element.matches(":focus-visible"); if (focused) point(current); };
  element.onblur = () => { focused = false; chart.dispatchAction({ type: "hideTip" }); paint(); };
  element.onkeydown = (event) => {
    const moves = {
      ArrowDown: () => point(drawn(children[current])[0] ?? current), ArrowUp: () => point(current === zoomed ? current : nodes[current].parent),
      ArrowLeft: () => point(neighbor(-1)), ArrowRight: () => point(neighbor(1)),
      Enter: () => { zoom(current); point(current); }, Escape: () => { zoom(Math.max(nodes[zoomed].parent, top)); point(current); },
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    focused = true;
    moves[event.key]();
  };
  show();
  return show;
};
