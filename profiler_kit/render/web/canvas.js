// Drawing on a canvas: shapes, axes, legends, tooltips, and views that zoom. Sizes are in CSS pixels.
const FONT = 'px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const INKS = ["text", "muted", "line", "background", "surface", "accent", "high", "more", "less"];
let inks = {}; // the colors of the theme, read before each painting
const isNarrow = () => (chartWidth === "auto" ? innerWidth : chartWidth) < 700;
const labelLength = () => (isNarrow() ? 16 : 40);

const tooltip = create("div", { className: "tooltip", hidden: true, role: "tooltip" });
document.body.append(tooltip);
// `lines`: a title, then texts, or pairs of a color and a text. Text of models and traces is set as text.
function showTip(lines, x, y) {
  tooltip.replaceChildren(...lines.filter(Boolean).map((line, i) => {
    if (typeof line === "string") return create(i ? "div" : "b", {}, cut(line, 160));
    const chip = create("i");
    chip.style.background = line[0];
    return create("div", {}, chip, cut(line[1], 160));
  }));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, document.documentElement.clientWidth - width - 8))}px`;
  tooltip.style.top = `${y + 18 + height < innerHeight ? y + 18 : Math.max(4, y - height - 10)}px`;
}
const hideTip = () => { tooltip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });

// A canvas in `element`, as wide as it and `height()` high, on which `paint(kit, width, height)` draws. What is under the pointer:
// `at(x, y)`, or the last part that was painted there; its `tip()` has the lines of a tooltip, its `click()` follows a press.
function surface(element, { height, paint, at }) {
  const canvas = create("canvas"), context = canvas.getContext("2d"), kit = paintKit(context);
  element.replaceChildren(canvas);
  function draw() {
    const wide = chartWidth === "auto" ? element.clientWidth : chartWidth, high = height(wide), ratio = Math.max(devicePixelRatio, chartWidth === "auto" ? 1 : 2);
    element.style.height = element.style.minHeight = canvas.style.height = `${high}px`;
    canvas.style.width = `${wide}px`;
    Object.assign(canvas, { width: Math.round(wide * ratio), height: Math.round(high * ratio) });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    inks = Object.fromEntries(INKS.map((name) => [name, style(`--${name}`)]));
    kit.parts.length = 0;
    paint(kit, wide, high);
  }
  at ??= (x, y) => kit.parts.findLast((part) => x >= part.x && x <= part.x + part.width && y >= part.y && y <= part.y + part.height);
  const under = ({ offsetX, offsetY }) => at(offsetX, offsetY);
  canvas.onmousemove = (event) => {
    const part = event.buttons ? null : under(event);
    canvas.style.cursor = part?.click ? "pointer" : "";
    if (part?.tip) showTip(part.tip(), event.clientX, event.clientY); else hideTip();
  };
  canvas.onmouseleave = hideTip;
  let pressed = 0;
  canvas.onpointerdown = ({ clientX }) => { pressed = clientX; };
  canvas.onclick = (event) => { if (!event.shiftKey && Math.abs(event.clientX - (pressed || event.clientX)) < 4) under(event)?.click?.(); };
  return draw;
}

function paintKit(context) {
  const parts = [];
  const font = (size, isBold) => { context.font = `${isBold ? "bold " : ""}${size}${FONT}`; };
  return {
    parts, context,
    part(x, y, width, height, tip, click) { parts.push({ x, y, width, height, tip, click }); },
    rect(x, y, width, height, color, opacity = 1) {
      context.globalAlpha = opacity;
      context.fillStyle = color;
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
    },
    frame(x, y, width, height, color, { thick = 1, dash = [] } = {}) {
      Object.assign(context, { strokeStyle: color, lineWidth: thick });
      context.setLineDash(dash);
      context.strokeRect(x, y, width, height);
    },
    line(points, color, { thick = 1, dash = [] } = {}) {
      Object.assign(context, { strokeStyle: color, lineWidth: thick });
      context.setLineDash(dash);
      context.beginPath();
      points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.stroke();
    },
    area(points, color, opacity) {
      Object.assign(context, { fillStyle: color, globalAlpha: opacity });
      context.beginPath();
      points.forEach(([x, y]) => context.lineTo(x, y));
      context.fill();
      context.globalAlpha = 1;
    },
    dot(x, y, radius, color, { opacity = 1, edge } = {}) {
      Object.assign(context, { fillStyle: color, globalAlpha: opacity });
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
      if (edge) { context.setLineDash([]); Object.assign(context, { strokeStyle: edge, lineWidth: 1 }); context.stroke(); }
    },
    width(written, size = 12) { font(size); return context.measureText(written).width; },
    // `most`: the width to cut the text to; `back`: the color behind it.
    text(written, x, y, { color = inks.text, align = "left", base = "middle", size = 12, isBold = false, most, back } = {}) {
      font(size, isBold);
      const wide = most === undefined ? 0 : context.measureText(written).width;
      if (wide > most) {
        let length = Math.max(1, Math.floor((written.length * most) / wide) - 1);
        while (length > 1 && context.measureText(`${written.slice(0, length)}…`).width > most) length -= 1;
        written = `${written.slice(0, length)}…`;
      }
      if (back) {
        const long = context.measureText(written).width + 6, high = size + 2;
        this.rect(align === "right" ? x - long + 3 : x - 3, base === "bottom" ? y - high : y - high / 2, long, high, back);
      }
      Object.assign(context, { fillStyle: color, textAlign: align, textBaseline: base });
      context.fillText(written, x, y);
    },
  };
}

// Round values from `low` to `high`; of bytes, in binary units.
function ticks(low, high, most, unit) {
  const rough = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough));
  if (!(rough > 0)) return [low];
  const step = unit === "bytes" ? Math.max(1, 2 ** Math.ceil(Math.log2(rough))) : [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, i) => (first + i) * step);
}
const powers = (low, high) => Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, i) => low * 10 ** i);
// Round values between the ends of a logarithmic axis: powers of ten, and where there are few of them also two and five times.
function logarithmicTicks(low, high) {
  const all = powers(10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high))).filter((value) => value >= low && value <= high);
  if (all.length > 2) return all;
  return powers(10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high))).flatMap((value) => [value, 2 * value, 5 * value]).filter((value) => value >= low && value <= high);
}
const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
const logarithmic = (low, high, from, to) => (value) => linear(Math.log10(low), Math.log10(high), from, to)(Math.log10(value));

// Axes of an `area` (left, top, right, bottom): lines across it at the ticks, with labels outside.
function horizontalAxis(kit, area, scale, values, label) {
  let free = -Infinity;
  for (const value of values) {
    const x = scale(value), written = label(value), half = kit.width(written) / 2;
    kit.line([[x, area.top], [x, area.bottom]], inks.line);
    if (x - half < free) continue;
    kit.text(written, x, area.bottom + 6, { color: inks.muted, align: "center", base: "top" });
    free = x + half + 10;
  }
}
function verticalAxis(kit, area, scale, values, label) {
  for (const value of values) {
    const y = scale(value);
    kit.line([[area.left, y], [area.right, y]], inks.line);
    kit.text(label(value), area.left - 6, y, { color: inks.muted, align: "right" });
  }
}
const gutter = (kit, labels) => 12 + Math.max(0, ...labels.map((label) => kit.width(label)));
// The rows of a chart of bars: their names on the left, and the middle and height of each.
function rowsOf(kit, names, area, emphasized = new Map()) {
  const high = (area.bottom - area.top) / names.length;
  return names.map((name, i) => {
    const y = area.top + (i + 0.5) * high;
    kit.text(cut(name, labelLength()), area.left - 8, y, { color: emphasized.has(i) ? inks.high : inks.muted, align: "right" });
    return { y, high };
  });
}
const barsHeight = (rows, more) => more + (rows > 6 ? 25 : 32) * rows;

// The meaning of colors, above a chart: pairs of a name and a color.
function legend(tools, entries) {
  const chips = entries.map(([name, color]) => {
    const chip = create("i");
    chip.style.background = color;
    return create("span", {}, chip, name);
  });
  tools.after(create("div", { className: "legend" }, ...chips));
}

// A view on the range from `low` to `high`: buttons in `tools`, keys, dragging, and the wheel with Ctrl pressed; others scroll the page.
// `area()` is where the range is drawn. `changed()` follows each change.
function zooming(element, tools, [low, high], area, changed, whole) {
  const view = { from: low, to: high };
  // `isOwn`: the user moves this view, not another one that it follows.
  const move = (from, to, isOwn = true) => {
    const width = Math.min(high - low, Math.max((high - low) / 1e4, to - from));
    view.from = Math.min(high - width, Math.max(low, from));
    view.to = view.from + width;
    element.dataset.view = `${view.from} ${view.to}`;
    changed(isOwn);
  };
  const zoom = (factor, middle = (view.from + view.to) / 2) => move(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  const pan = (part) => { const by = (view.to - view.from) * part; move(view.from + by, view.to + by); };
  view.at = (x) => { const { left, right } = area(); return view.from + ((x - left) / (right - left)) * (view.to - view.from); };
  tools.append(
    named(button("+", () => zoom(0.5)), "Zoom in"), named(button("−", () => zoom(2)), "Zoom out"),
    named(button("‹", () => pan(-0.4)), "Earlier"), named(button("›", () => pan(0.4)), "Later"), button(whole, () => move(low, high)),
  );
  const place = ({ clientX }) => clientX - element.getBoundingClientRect().left;
  element.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, view.at(place(event)));
  }, { passive: false });
  element.addEventListener("pointerdown", (event) => {
    if (event.shiftKey || event.button) return;
    const start = place(event), { from, to } = view, { left, right } = area();
    const drag = (moved) => { const by = ((start - place(moved)) / (right - left)) * (to - from); if (by) move(from + by, to + by); };
    addEventListener("pointermove", drag);
    for (const type of ["pointerup", "pointercancel"]) addEventListener(type, () => removeEventListener("pointermove", drag), { once: true });
  });
  element.tabIndex = 0;
  element.setAttribute("role", "application");
  element.onkeydown = (event) => {
    const moves = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => zoom(0.7), ArrowDown: () => zoom(1.4), "+": () => zoom(0.5), "-": () => zoom(2), Escape: () => move(low, high) };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  };
  return Object.assign(view, { move });
}
