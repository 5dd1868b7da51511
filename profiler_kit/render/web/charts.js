// Bars, intervals, waterfalls, lines and rooflines. Each function returns the function that draws the chart again.
const MAX_ROWS = 24; // more bars than this stand upright, side by side
const tickCount = (area) => Math.max(2, Math.floor((area.right - area.left) / (isNarrow() ? 90 : 110)));

const draw = {
  bars(element, data, tools) {
    const { rows, parts, unit } = data, marks = new Map((data.marks || []).map((mark) => [mark.row, mark.text]));
    const isUpright = rows.length > MAX_ROWS, total = (i) => parts.reduce((sum, part) => sum + part.values[i], 0);
    const most = Math.max(1, ...rows.map((_, i) => total(i))), tip = (i) => () => [
      `${rows[i]}: ${text(total(i), unit)}`, marks.get(i),
      ...parts.map((part, j) => part.values[i] && [colorOf(part.name, j), `${part.name} ${text(part.values[i], unit)} (${percent(part.values[i], total(i))})`]),
    ];
    if (parts.length > 1) legend(tools, parts.map((part, i) => [part.name, colorOf(part.name, i)]));
    element.dataset.marked = [...marks.keys()].join(" ");
    function lying(kit, wide, high) {
      const area = { left: gutter(kit, rows.map((row) => cut(row, labelLength()))), top: 4, right: wide - 24, bottom: high - 24 };
      const scale = linear(0, most, area.left, area.right);
      horizontalAxis(kit, area, scale, ticks(0, most, tickCount(area), unit), (value) => text(value, unit));
      rowsOf(kit, rows, area, marks).forEach(({ y, high: row }, i) => {
        const thick = Math.min(24, 0.75 * row);
        let sum = 0;
        parts.forEach((part, j) => { kit.rect(scale(sum), y - thick / 2, scale(sum + part.values[i]) - scale(sum), thick, colorOf(part.name, j)); sum += part.values[i]; });
        if (marks.has(i)) kit.frame(area.left, y - row / 2 + 1, area.right - area.left, row - 2, inks.high, { thick: 2 });
        kit.part(0, y - row / 2, wide, row, tip(i));
      });
    }
    function upright(kit, wide, high) {
      const values = ticks(0, most, 6, unit), label = (value) => text(value, unit);
      const area = { left: gutter(kit, values.map(label)), top: 22, right: wide - 8, bottom: high - 22 };
      const scale = linear(0, most, area.bottom, area.top), column = (area.right - area.left) / rows.length;
      verticalAxis(kit, area, scale, values, label);
      const every = Math.ceil((14 + Math.max(...rows.map((row) => kit.width(row)))) / column);
      rows.forEach((row, i) => {
        const x = area.left + i * column, color = marks.has(i) ? inks.high : inks.muted;
        let sum = 0;
        parts.forEach((part, j) => { kit.rect(x + column / 8, scale(sum + part.values[i]), 0.75 * column, scale(sum) - scale(sum + part.values[i]), colorOf(part.name, j)); sum += part.values[i]; });
        if (marks.has(i)) {
          kit.frame(x, area.top, column, area.bottom - area.top, color, { thick: 2 });
          kit.text(row, x + column / 2, area.top - 4, { color, align: "center", base: "bottom", isBold: true });
        }
        if (i % every === 0) kit.text(row, x + column / 2, area.bottom + 6, { color, align: "center", base: "top" });
        kit.part(x, area.top, column, area.bottom - area.top, tip(i));
      });
    }
    return surface(element, { height: () => (isUpright ? 350 : barsHeight(rows.length, 40)), paint: isUpright ? upright : lying });
  },

  intervals(element, data) {
    const { rows, unit } = data, baseline = rows.find((row) => row.name === data.baseline);
    const ratio = (row) => (baseline && row !== baseline ? row.ratio || "" : "");
    const reference = baseline?.value ?? (unit === "ratio" ? 1 : null); // left of it is better
    const label = (row) => [text(row.value, unit), ratio(row), ...(isNarrow() ? [] : [row.note])].filter(Boolean).join("  ·  ");
    const most = Math.max(...rows.map((row) => row.high ?? row.value));
    const tip = (row) => () => [
      row.name, text(row.value, unit) + (row.low == null ? "" : ` (${text(row.low, unit)} to ${text(row.high, unit)})`),
      ratio(row) && `${ratio(row)} of ${data.baseline}`, row.note,
    ];
    function paint(kit, wide, high) {
      const area = { left: gutter(kit, rows.map((row) => cut(row.name, labelLength()))), top: 4, right: wide - (isNarrow() ? 90 : 150), bottom: high - 24 };
      const scale = linear(0, most, area.left, area.right);
      horizontalAxis(kit, area, scale, ticks(0, most, tickCount(area), unit), (value) => text(value, unit));
      if (reference !== null) kit.line([[scale(reference), area.top], [scale(reference), area.bottom]], inks.muted, { dash: [4, 3] });
      rowsOf(kit, rows.map((row) => row.name), area).forEach(({ y, high: thick }, i) => {
        const row = rows[i], [low, x, top] = [row.low ?? row.value, row.value, row.high ?? row.value].map(scale);
        const color = inks[{ better: "less", worse: "more" }[row.outcome] || "muted"], isRight = Math.max(x, top) + 12 + kit.width(label(row)) < wide;
        kit.line([[low, y], [top, y]], color, { thick: 3 });
        kit.dot(x, y, 5.5, color);
        kit.text(label(row), isRight ? Math.max(x, top) + 12 : Math.min(x, low) - 12, y, { align: isRight ? "left" : "right", back: inks.background });
        kit.part(0, y - thick / 2, wide, thick, tip(row));
      });
    }
    return surface(element, { height: () => barsHeight(rows.length, 28), paint });
  },

  waterfall(element, data) {
    const { rows, unit } = data, changes = rows.filter((row) => !row.total).flatMap((row) => [row.start, row.end]);
    const low = Math.min(...changes), high = Math.max(...rows.map((row) => Math.max(row.start, row.end)));
    // Where the changes are small, the axis begins near them: the first and the last bar are cut.
    const min = low > 0.5 * high ? Math.max(0, low - 0.3 * (high - low)) : Math.min(0, low);
    const label = (row) => (row.total ? text(row.end - row.start, unit) : signed(row.end - row.start, unit));
    function paint(kit, wide, tall) {
      const area = { left: gutter(kit, rows.map((row) => cut(row.name, labelLength()))), top: 4, right: wide - gutter(kit, rows.map(label)), bottom: tall - 24 };
      const scale = linear(min, high, area.left, area.right), at = (value) => scale(Math.max(min, value));
      horizontalAxis(kit, area, scale, ticks(min, high, tickCount(area), unit), (value) => text(value, unit));
      rowsOf(kit, rows.map((row) => row.name), area).forEach(({ y, high: row }, i) => {
        const { start, end, total, name } = rows[i], [from, to] = [start, end].map(at), thick = Math.min(20, 0.66 * row);
        kit.rect(Math.min(from, to), y - thick / 2, Math.max(1.5, Math.abs(to - from)), thick, total ? inks.muted : end > start ? inks.more : inks.less);
        kit.text(label(rows[i]), Math.max(from, to) + 8, y);
        kit.part(0, y - row / 2, wide, row, () => [name, label(rows[i])]);
      });
    }
    return surface(element, { height: () => barsHeight(rows.length, 28), paint });
  },

  lines(element, data, tools) {
    const { points, lines, unit, bands = [] } = data, sums = points.map(() => 0);
    const tops = lines.map((line) => line.values.map((value, i) => (sums[i] += value))), most = Math.max(1, ...sums);
    let area = { left: 0, right: 1 };
    const draw = surface(element, { height: () => 300, paint });
    const view = zooming(element, tools, [0, points.length], () => area, () => draw(), "Whole step");
    element.setAttribute("aria-roledescription", "chart of lines");
    if (lines.length > 1) legend(tools, lines.map((line, i) => [line.name, colorOf(line.name, i)]));
    function paint(kit, wide, high) {
      const label = (value) => text(value, unit), values = ticks(0, 1.04 * most, 6, unit);
      area = { left: gutter(kit, values.map(label)), top: bands.length ? 22 : 8, right: wide - 12, bottom: high - 42 };
      const scale = linear(view.from, view.to, area.left, area.right), level = linear(0, 1.04 * most, area.bottom, area.top), { context } = kit;
      verticalAxis(kit, area, level, values, label);
      const numbers = ticks(view.from, view.to, tickCount(area), "count").filter(Number.isInteger);
      horizontalAxis(kit, area, scale, numbers.filter((i) => i < points.length), (i) => `${i + 1}`);
      kit.text("operator", (area.left + area.right) / 2, high - 8, { color: inks.muted, align: "center", base: "bottom" });
      const [first, last] = [Math.floor(view.from), Math.min(points.length, Math.ceil(view.to))];
      context.save();
      context.beginPath();
      context.rect(area.left, 0, area.right - area.left, high);
      context.clip();
      bands.forEach((band, i) => {
        const [left, right] = [scale(band.start), scale(band.end)], color = colorOf(band.name, i), room = Math.min(right, area.right) - Math.max(left, area.left);
        kit.rect(left, 2, right - left - 1, 16, color);
        kit.rect(left, area.top, right - left, area.bottom - area.top, color, 0.07);
        if (room > 24) kit.text(band.name, Math.max(left, area.left) + 4, 10, { color: inkOn(color), most: room - 8, size: 11 });
      });
      const steps = (values) => values.slice(first, last).flatMap((value, j) => [[scale(first + j), level(value)], [scale(first + j + 1), level(value)]]);
      lines.forEach((line, i) => {
        kit.area([...steps(i ? tops[i - 1] : sums.map(() => 0)).reverse(), ...steps(tops[i])], colorOf(line.name, i), lines.length > 1 ? 0.75 : 0.2);
        kit.line(steps(tops[i]), colorOf(line.name, i), { thick: 1.5 });
      });
      context.restore();
      kit.part(area.left, area.top, area.right - area.left, area.bottom - area.top);
    }
    element.addEventListener("mousemove", (event) => {
      const i = Math.floor(view.at(event.offsetX));
      if (points[i] !== undefined && !event.buttons) showTip([points[i], ...(lines.length > 1 ? [text(sums[i], unit)] : []), ...lines.map((line, j) => line.values[i] && [colorOf(line.name, j), `${line.name} ${text(line.values[i], unit)}`]).filter(Boolean)], event.clientX, event.clientY);
    });
    return draw;
  },

  scatter(element, data, tools) {
    const { x: across, y: up, points } = data, groups = [...new Set(points.map((point) => point.group))];
    const [xs, ys] = [points.map((point) => point.x), points.map((point) => point.y)];
    const around = (values) => [0.7 * Math.min(...values), 1.4 * Math.max(...values)];
    const color = (point) => (groups.length > 1 ? colorOf(point.group, groups.indexOf(point.group)) : inks.accent);
    const tip = (point) => () => [point.name, [color(point), point.group], `${across.title} ${text(point.x, across.unit)}`, `${up.title} ${text(point.y, up.unit)}`];
    if (groups.length > 1) legend(tools, groups.map((group, i) => [group, colorOf(group, i)]));
    function paint(kit, wide, tall) {
      const heights = logarithmicTicks(...around(ys)), label = (value) => text(value, up.unit);
      const area = { left: gutter(kit, heights.map(label)), top: 24, right: wide - 28, bottom: tall - 42 };
      const x = logarithmic(...around(xs), area.left, area.right), y = logarithmic(...around(ys), area.bottom, area.top);
      horizontalAxis(kit, area, x, logarithmicTicks(...around(xs)), (value) => text(value, across.unit));
      verticalAxis(kit, area, y, heights, label);
      kit.text(up.title, area.left, 2, { color: inks.muted, base: "top" });
      kit.text(across.title, (area.left + area.right) / 2, tall - 8, { color: inks.muted, align: "center", base: "bottom" });
      const dots = points.map((point) => ({ point, x: x(point.x), y: y(point.y), radius: 5 }));
      for (const { point, x: left, y: above } of dots) {
        kit.dot(left, above, 5, color(point), { opacity: 0.85, edge: inks.background });
        kit.part(left - 7, above - 7, 14, 14, tip(point));
      }
      nameDots(kit, dots, area, []);
    }
    return surface(element, { height: () => (isNarrow() ? 350 : 420), paint });
  },

  roofline(element, data, tools) {
    const { points, roofs } = data, peaks = roofs.flatMap((roof) => roof.peaks.map((peak) => ({ ...peak, ridge: peak.rate / roof.bandwidth })));
    const [xs, ys] = [points.map((point) => point.intensity), points.map((point) => point.rate)];
    const low = 10 ** Math.floor(Math.log10(Math.min(...xs))), high = 10 ** Math.ceil(Math.log10(Math.max(...xs, ...peaks.map((peak) => peak.ridge)) * 1.5));
    const bottom = 10 ** Math.floor(Math.log10(Math.min(...ys, ...peaks.map((peak) => peak.rate)))), top = 2 * Math.max(...ys, ...peaks.map((peak) => peak.rate));
    const longest = Math.max(...points.map((point) => point.ns)), phases = [...new Set(points.map((point) => point.phase))];
    const color = (point) => colorOf(point.phase, phases.indexOf(point.phase));
    const tip = (point) => () => [`${point.name}, ${point.phase}`, `${text(point.ns, "ns")}, ${text(point.rate, "flops/s")}`, `${number(point.intensity)} FLOP per byte`];
    // Peaks that are too close for a label each share one, at the highest.
    const near = (roof, { rate }) => roof.peaks.filter((peak) => peak.rate <= rate && rate < 1.5 * peak.rate);
    const isHighest = (roof, peak, j) => !roof.peaks.some((other, k) => other.rate > peak.rate ? other.rate < 1.5 * peak.rate : other.rate === peak.rate && k > j);
    legend(tools, [...phases.map((phase, i) => [phase, colorOf(phase, i)]), ...roofs.map((roof, i) => [`${i ? "dashed" : "line"}: ${roof.name}`, `var(--${i ? "muted" : "text"})`])]);
    function paint(kit, wide, tall) {
      const rates = powers(bottom, 10 ** Math.floor(Math.log10(top))), label = (rate) => text(rate, "flops/s");
      const area = { left: gutter(kit, rates.map(label)), top: 6, right: wide - 28, bottom: tall - 42 };
      const x = logarithmic(low, high, area.left, area.right), y = logarithmic(bottom, top, area.bottom, area.top);
      horizontalAxis(kit, area, x, powers(low, high), (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 }));
      verticalAxis(kit, area, y, rates, label);
      kit.text("FLOP per byte", (area.left + area.right) / 2, tall - 8, { color: inks.muted, align: "center", base: "bottom" });
      const labels = [];
      roofs.forEach((roof, i) => roof.peaks.forEach((peak, j) => {
        const start = Math.max(low, bottom / roof.bandwidth);
        kit.line([[start, start * roof.bandwidth], [peak.rate / roof.bandwidth, peak.rate], [high, peak.rate]].map(([a, b]) => [x(a), y(b)]), i ? inks.muted : inks.text, i ? { dash: [4, 3] } : { thick: 1.6 });
        if (!i && isHighest(roof, peak, j)) labels.push([near(roof, peak).map(({ name, rate }) => (isNarrow() ? name : `${name} ${label(rate)}`)).join(", "), y(peak.rate) - 3]);
      }));
      for (const [written, above] of labels) kit.text(written, area.right - 4, above, { align: "right", base: "bottom", size: 11, back: inks.background });
      const dots = [...points].sort((a, b) => b.ns - a.ns).map((point) => ({ point, x: x(point.intensity), y: y(point.rate), radius: 3.5 + 12 * Math.sqrt(point.ns / longest) }));
      for (const { point, x: left, y: up, radius } of dots) {
        kit.dot(left, up, radius, color(point), { opacity: 0.8, edge: inks.background });
        kit.part(left - radius, up - radius, 2 * radius, 2 * radius, tip(point));
      }
      nameDots(kit, dots, area, labels.map(([written, above]) => [area.right - 6 - kit.width(written, 11), above - 13, area.right, above]));
    }
    return surface(element, { height: () => (isNarrow() ? 350 : 450), paint });
  },
};

// The names of dots, the slowest first, where they cover no label, name or dot.
function nameDots(kit, dots, area, labels) {
  const taken = [...labels, ...dots.map(({ x, y, radius }) => [x - radius, y - radius, x + radius, y + radius])];
  const isFree = ([left, top, right, bottom]) => left >= area.left && right <= area.right && !taken.some((box) => left < box[2] && right > box[0] && top < box[3] && bottom > box[1]);
  for (const { point, x, y, radius } of dots) {
    const name = cut(point.name, 28), wide = kit.width(name, 11);
    const places = [[x + radius + 3, "left", x + radius + 3], [x - radius - 3, "right", x - radius - 3 - wide]];
    const place = places.find(([, , left]) => isFree([left, y - 6, left + wide, y + 6]));
    if (!place) continue;
    kit.text(name, place[0], y, { align: place[1], size: 11, color: inks.muted });
    taken.push([place[2], y - 6, place[2] + wide, y + 6]);
  }
}
