// The module tree as boxes: width by a figure, color by the share of the roofline or by class; zoom, search, keyboard.
const ROW = 27, MAX_LEVELS = 28; // pixels, rows
draw.icicle = function icicle(element, data, tools) {
  const nodes = data.nodes, children = nodes.map(() => []);
  nodes.forEach((node, i) => { if (node.parent >= 0) children[node.parent].push(i); });
  const { subject = "modules" } = data, top = nodes.findIndex((node) => node.parent < 0);
  const hasShares = nodes.some((node) => node.share != null);
  const classes = new Map();
  for (const { type } of nodes) { const name = type.split(" ")[0]; if (!classes.has(name)) classes.set(name, classes.size); }
  const hasChanges = nodes[0].change !== undefined;
  let key = data.sizes[0].key, coloring = hasChanges ? "change" : hasShares ? "share" : "class", zoomed = top, current = top, wanted = "", boxes = [], focused = false;
  const ancestors = (i) => (i < 0 ? [] : [...ancestors(nodes[i].parent), i]);

  const size = named(create("select"), "Width of a module");
  for (const figure of data.sizes) size.add(new Option(`size: ${figure.title}`, figure.key));
  const color = named(create("select"), "Color of a module");
  if (hasChanges) color.add(new Option("color: change", "change"));
  if (hasShares) color.add(new Option("color: % of roofline", "share"));
  color.add(new Option(classes.size > 1 ? "color: class" : "color: name", "class"));
  const search = named(create("input", { type: "search", placeholder: `Search ${subject}` }), `Search ${subject}`);
  const matches = create("span", { className: "matches" });
  matches.setAttribute("role", "status");
  const scale = create("span", { className: "scale", title: "Share of the roofline" }, "0 %", create("i"), "100 %");
  const crumbs = named(create("nav", { className: "crumbs" }), "Zoomed module");
  tools.append(...(data.sizes.length > 1 ? [size] : []), ...(hasShares || hasChanges ? [color] : []), search, matches, scale, crumbs);
  size.onchange = () => { key = size.value; show(); };
  color.onchange = () => { coloring = color.value; show(); };
  const isMatch = (node) => !wanted || node.path.toLowerCase().includes(wanted) || node.type.toLowerCase().includes(wanted);
  search.oninput = () => {
    wanted = search.value.toLowerCase();
    matches.textContent = wanted ? `${nodes.filter(isMatch).length.toLocaleString("en")} of ${nodes.length.toLocaleString("en")}` : "";
    draw();
  };
  search.onkeydown = (event) => { // Enter zooms to the first match
    const first = event.key === "Enter" && wanted ? nodes.findIndex(isMatch) : -1;
    if (first >= 0) zoom(first);
  };

  function layout() {
    boxes = [];
    const add = (i, depth, left, width) => {
      boxes.push([left, depth, left + width, i]);
      const total = Math.max(nodes[i][key], children[i].reduce((sum, child) => sum + nodes[child][key], 0));
      let at = left;
      for (const child of children[i]) {
        const part = total ? (width * nodes[child][key]) / total : 0;
        if (part > least) add(child, depth + 1, at, part);
        at += part;
      }
    };
    const least = 0.4 / Math.max(1, element.clientWidth); // thinner boxes are not drawn
    add(zoomed, 0, 0, 1);
  }
  // By class, or by name where all have the same class.
  const names = new Map();
  nodes.forEach(({ name }) => { if (!names.has(name)) names.set(name, names.size); });
  const hue = ({ name, type }) => ((classes.size > 1 ? classes.get(type.split(" ")[0]) : names.get(name)) * 67 + 205) % 360;
  // The stronger the orange, the farther below the roofline; gray is unknown. Lightness differs too, for any color vision.
  function fill(node) {
    const dark = isDark();
    // The stronger the color, the larger the change relative to the larger side.
    if (coloring === "change") return node.change ? `hsl(${node.change > 0 ? 24 : 210} ${25 + 60 * Math.abs(node.change)}% ${dark ? 24 + 18 * Math.abs(node.change) : 88 - 24 * Math.abs(node.change)}%)` : dark ? "#3d4a5c" : "#d5dbe3";
    if (coloring === "class") return `hsl(${hue(node)} ${dark ? 30 : 48}% ${dark ? 32 : 80}%)`;
    return node.share == null ? (dark ? "#3d4a5c" : "#c3ccd8") : `hsl(24 85% ${Math.round(dark ? 42 - 0.24 * Math.min(100, node.share) : 62 + 0.3 * Math.min(100, node.share))}%)`;
  }
  function describe(i) {
    const node = nodes[i], figures = data.sizes.filter((figure) => node[figure.key] != null);
    return [
      node.path, node.type, ...figures.map((figure) => `${figure.title} ${text(node[figure.key], figure.unit)} (${percent(node[figure.key], nodes[top][figure.key])})`),
      node.change === undefined ? "" : node.change ? `${number(100 * Math.abs(node.change))} % ${node.change > 0 ? "of it added" : "of it removed"}` : "no change",
      node.share == null ? "" : `${number(node.share)} % of the roofline`,
    ];
  }
  const levels = () => 1 + boxes.reduce((most, box) => Math.max(most, box[1]), 0);
  const place = ([left, depth, right], wide) => [left * wide, depth * ROW, Math.max(0.5, (right - left) * wide - 1), ROW - 1];
  function paint(kit, wide) {
    for (const box of boxes) {
      const node = nodes[box[3]], [x, y, width, height] = place(box, wide), opacity = isMatch(node) ? 1 : 0.2;
      kit.rect(x, y, width, height, fill(node), opacity);
      if (width > 28) kit.text(node.name, x + 4, y + height / 2, { most: width - 8, color: opacity < 1 ? inks.muted : inks.text });
      if (focused && box[3] === current) kit.frame(x + 1, y + 1, width - 2, height - 2, inks.text, { thick: 2 });
    }
  }
  function at(x, y) {
    const part = x / element.clientWidth, box = boxes.find(([left, depth, right]) => depth === Math.floor(y / ROW) && part >= left && part < right);
    return box && { tip: () => describe(box[3]), click: () => zoom(box[3] === zoomed && nodes[zoomed].parent >= 0 ? nodes[zoomed].parent : box[3]) };
  }
  const draw = surface(element, { height: () => ROW * Math.min(levels(), MAX_LEVELS), paint, at });
  function show() {
    layout();
    scale.hidden = coloring !== "share";
    scale.querySelector("i").style.background = `linear-gradient(to right, ${[0, 100].map((share) => fill({ share, type: "" })).join(", ")})`;
    element.dataset.boxes = boxes.length;
    draw();
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
  zoomers.set(element, (path) => {
    const i = nodes.findIndex((node) => node.path === path);
    if (i >= 0) zoom(i);
  });

  // Arrows move between the visible boxes, Enter zooms in, Escape zooms out.
  function point(i) {
    const box = boxes.find((one) => one[3] === i);
    if (!box) return;
    current = i;
    draw();
    const { left, top: above, width } = element.getBoundingClientRect(), [x, y] = place(box, width);
    showTip(describe(i), left + x, above + y + 8);
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
  element.onblur = () => { focused = false; hideTip(); draw(); };
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
