// Bars, intervals, waterfalls, lines and rooflines: each returns the options of an ECharts chart.
const isNarrow = () => (chartWidth === "auto" ? innerWidth : chartWidth) < 700;
const labelLength = () => (isNarrow() ? 16 : 40);
const without = (object, key) => Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));

function frame() {
  const color = style("--text"), onPaper = chartWidth !== "auto";
  return {
    backgroundColor: "transparent", color: PALETTE, animation: false,
    textStyle: { color, fontFamily: "system-ui, sans-serif" },
    tooltip: {
      confine: true, backgroundColor: style("--surface"), borderColor: style("--line"), textStyle: { color, fontSize: 13 },
      extraCssText: "max-width: min(36rem, 90vw); white-space: normal; overflow-wrap: anywhere;",
    },
    legend: {
      textStyle: { color, fontSize: onPaper ? 10 : 12 }, pageTextStyle: { color }, pageIconColor: color, type: "scroll", top: 0, left: 0, itemWidth: 14, itemHeight: 10, itemGap: onPaper ? 8 : 16, icon: "roundRect",
    },
    grid: { left: 4, right: 28, top: 36, bottom: 4, containLabel: true },
  };
}
const axis = (more) => ({
  axisLabel: { color: style("--muted"), ...more.axisLabel }, axisLine: { lineStyle: { color: style("--line") } },
  splitLine: { lineStyle: { color: style("--line") } }, nameTextStyle: { color: style("--muted") }, ...without(more, "axisLabel"),
});
// Labels of bytes are round in binary units.
const valueAxis = (unit, most, more = {}) => axis({
  type: "value", splitNumber: isNarrow() ? 3 : 6, axisLabel: { formatter: (value) => text(value, unit), hideOverlap: true, ...(unit === "bytes" ? { showMaxLabel: false } : {}) },
  ...(unit === "bytes" && most > 0 ? { max: most, interval: 2 ** Math.round(Math.log2(most / (isNarrow() ? 3 : 5))) } : {}), ...more,
});
const nameAxis = (names, more = {}) => axis({
  type: "category", inverse: true, data: names, axisTick: { show: false }, axisLine: { show: false },
  axisLabel: { formatter: (name) => cut(name, labelLength()), ...more },
});
const height = (rows, more = 58) => `${more + (rows > 6 ? 25 : 32) * rows}px`; // not in rem, which is smaller on paper
const tip = (formatter, more = {}) => ({ ...frame().tooltip, ...more, formatter });
const MAX_ROWS = 24; // more bars than this stand upright, side by side

const draw = {
  bars(element, data) {
    const { rows, parts, unit } = data, marks = new Map((data.marks || []).map((mark) => [mark.row, mark.text]));
    const upright = rows.length > MAX_ROWS, every = Math.ceil(rows.length / (isNarrow() ? 4 : 16));
    element.style.height = upright ? "350px" : height(rows.length, 80);
    const total = (i) => parts.reduce((sum, part) => sum + part.values[i], 0);
    const marked = (_, i) => (marks.has(i) ? style("--high") : style("--muted"));
    const names = nameAxis(rows, {
      color: marked, ...(upright ? { interval: (i) => i % every === 0 } : { interval: 0 }),
    });
    const values = valueAxis(unit, Math.max(...rows.map((_, i) => total(i))));
    const band = { // a frame around the rows to point out
      type: "custom", silent: true, z: 5, data: [...marks.keys()].map((row) => (upright ? [row, 0] : [0, row])), encode: { x: 0, y: 1 },
      renderItem(params, api) {
        const area = params.coordSys, size = (upright ? area.width : area.height) / rows.length, row = api.value(upright ? 0 : 1), color = style("--high");
        const shape = upright ? { x: area.x + row * size, y: area.y, width: size, height: area.height } : { x: area.x, y: area.y + row * size, width: area.width, height: size };
        const label = { text: rows[row], x: shape.x + size / 2, y: area.y - 4, align: "center", verticalAlign: "bottom", fill: color, fontWeight: "bold", fontSize: 11 };
        return { type: "group", children: [
          { type: "rect", shape, style: { fill: "none", stroke: color, lineWidth: 2 } }, { type: "rect", shape, style: { fill: color, opacity: 0.18 } },
          ...(upright ? [{ type: "text", style: label }] : []),
        ] };
      },
    };
    return {
      ...frame(), ...(upright ? { xAxis: { ...names, inverse: false }, yAxis: values } : { xAxis: values, yAxis: names }),
      series: [
        ...parts.map((part, i) => ({
          type: "bar", stack: "all", name: part.name, data: part.values, color: colorOf(part.name, i), barMaxWidth: 24, barCategoryGap: "25%",
        })),
        ...(marks.size ? [band] : []),
      ],
      grid: { ...frame().grid, top: (parts.length > 1 ? 36 : 8) + (upright && marks.size ? 14 : 0) },
      legend: { ...frame().legend, show: parts.length > 1, data: parts.map((part) => part.name) },
      tooltip: tip((items) => [
        `<b>${short(items[0].name)}</b>: ${text(total(items[0].dataIndex), unit)}`,
        ...(marks.has(items[0].dataIndex) ? [safe(marks.get(items[0].dataIndex))] : []),
        ...items.filter((item) => item.seriesType === "bar" && item.value).map((item) =>
          `${item.marker}${safe(item.seriesName)} ${text(item.value, unit)} (${number((100 * item.value) / total(item.dataIndex))} %)`),
      ].join("<br>"), { trigger: "axis", axisPointer: { type: "shadow" } }),
    };
  },

  intervals(element, data) {
    const { rows, unit } = data, names = rows.map((row) => row.name);
    element.style.height = height(rows.length);
    const baseline = rows.find((row) => row.name === data.baseline), narrow = isNarrow();
    const ratio = (row) => (baseline && row !== baseline ? row.ratio || "" : "");
    const label = (row) => [text(row.value, unit), ratio(row), ...(narrow ? [] : [row.note])].filter(Boolean).join("  ·  ");
    const most = Math.max(...rows.map((row) => row.high ?? row.value));
    return {
      ...frame(), grid: { ...frame().grid, top: 8, right: narrow ? 90 : 120 },
      xAxis: valueAxis(unit, most, { min: 0 }),
      yAxis: nameAxis(names, { interval: 0 }),
      series: [{
        type: "custom", data: rows.map((row, i) => [row.value, i, row.low ?? row.value, row.high ?? row.value]), encode: { x: [0, 2, 3], y: 1 }, clip: false,
        renderItem(_, api) {
          const row = rows[api.value(1)], [x, y] = api.coord([api.value(0), api.value(1)]);
          const [low] = api.coord([api.value(2), api.value(1)]), [high] = api.coord([api.value(3), api.value(1)]);
          const isRight = Math.max(x, high) + 12 + 6.4 * label(row).length < api.getWidth();
          const stroke = style({ better: "--less", worse: "--more" }[row.outcome] || "--muted");
          return { type: "group", children: [
            { type: "line", shape: { x1: low, y1: y, x2: high, y2: y }, style: { stroke, lineWidth: 3 } },
            { type: "circle", shape: { cx: x, cy: y, r: 5.5 }, style: { fill: stroke } },
            { type: "text", style: { text: label(row), x: isRight ? Math.max(x, high) + 12 : Math.min(x, low) - 12, align: isRight ? "left" : "right", y, verticalAlign: "middle", fill: style("--text"), fontSize: 12 } },
          ] };
        },
      }],
      tooltip: tip(({ dataIndex }) => {
        const row = rows[dataIndex];
        const interval = row.low === undefined ? "" : ` (${text(row.low, unit)} to ${text(row.high, unit)})`;
        return [`<b>${short(row.name)}</b>`, text(row.value, unit) + interval, ratio(row) && `${safe(ratio(row))} of ${short(data.baseline)}`, safe(row.note || "")]
          .filter(Boolean).join("<br>");
      }),
    };
  },

  waterfall(element, data) {
    const { rows, unit } = data;
    element.style.height = height(rows.length);
    const low = Math.min(...rows.filter((row) => !row.total).flatMap((row) => [row.start, row.end]));
    const high = Math.max(...rows.map((row) => Math.max(row.start, row.end)));
    // Where the changes are small, the axis begins near them: the first and the last bar are cut.
    const min = low > 0.5 * high ? Math.max(0, low - 0.3 * (high - low)) : Math.min(0, low);
    const label = (row) => (row.total ? text(row.end - row.start, unit) : signed(row.end - row.start, unit));
    return {
      ...frame(), grid: { ...frame().grid, top: 8, right: 90 },
      xAxis: valueAxis(unit, high - min, { min }),
      yAxis: nameAxis(rows.map((row) => row.name), { interval: 0 }),
      series: [{
        type: "custom", data: rows.map((row, i) => [row.start, i, row.end]), encode: { x: [0, 2], y: 1 }, clip: false,
        renderItem(_, api) {
          const row = rows[api.value(1)], at = (value) => api.coord([Math.max(min, value), api.value(1)]);
          const [from, y] = at(api.value(0)), [to] = at(api.value(2)), thick = Math.min(20, 0.66 * api.size([0, 1])[1]);
          const fill = row.total ? style("--muted") : row.end > row.start ? style("--more") : style("--less");
          return { type: "group", children: [
            { type: "rect", shape: { x: Math.min(from, to), y: y - thick / 2, width: Math.max(1.5, Math.abs(to - from)), height: thick }, style: { fill } },
            { type: "text", style: { text: label(row), x: Math.max(from, to) + 8, y, verticalAlign: "middle", fill: style("--text"), fontSize: 12 } },
          ] };
        },
      }],
      tooltip: tip(({ dataIndex }) => `<b>${short(rows[dataIndex].name)}</b><br>${label(rows[dataIndex])}`),
    };
  },

  lines(element, data) {
    element.style.height = "320px";
    return {
      ...frame(),
      xAxis: axis({ type: "category", data: data.points.map((_, i) => i + 1), name: "operator", nameLocation: "middle", nameGap: 24, boundaryGap: false }),
      yAxis: valueAxis(data.unit, Math.max(...data.lines.flatMap((line) => line.values))),
      grid: { ...frame().grid, top: data.lines.length > 1 ? 36 : 12, bottom: 52 },
      legend: { ...frame().legend, show: data.lines.length > 1 },
      dataZoom: zoomBars(),
      series: data.lines.map((line) => ({
        type: "line", name: line.name, data: line.values, step: "end", showSymbol: false, areaStyle: { opacity: 0.2 }, sampling: "max", lineStyle: { width: 1.5 },
      })),
      tooltip: tip((items) => [
        `<b>${short(data.points[items[0].dataIndex])}</b>`,
        ...items.map((item) => `${item.marker}${safe(item.seriesName)} ${text(item.value, data.unit)}`),
      ].join("<br>"), { trigger: "axis" }),
    };
  },

  roofline(element, data) {
    element.style.height = isNarrow() ? "350px" : "450px";
    const xs = data.points.map((point) => point.intensity), ys = data.points.map((point) => point.rate);
    const peaks = data.roofs.flatMap((roof) => roof.peaks.map((peak) => peak.rate));
    const ridges = data.roofs.flatMap((roof) => roof.peaks.map((peak) => peak.rate / roof.bandwidth));
    const low = 10 ** Math.floor(Math.log10(Math.min(...xs))), high = 10 ** Math.ceil(Math.log10(Math.max(...xs, ...ridges) * 1.5));
    const longest = Math.max(...data.points.map((point) => point.ns));
    const phases = [...new Set(data.points.map((point) => point.phase))];
    // Peaks that are too close for a label each share one, at the highest.
    const near = (roof, { rate }) => roof.peaks.filter((peak) => peak.rate <= rate && rate < 1.5 * peak.rate);
    const isHighest = (roof, peak, j) => !roof.peaks.some((other, k) => other.rate > peak.rate ? other.rate < 1.5 * peak.rate : other.rate === peak.rate && k > j);
    const roofs = data.roofs.flatMap((roof, i) => roof.peaks.map((peak, j) => ({
      type: "line", name: roof.name, showSymbol: false, silent: true, color: i ? style("--muted") : style("--text"), z: 1,
      lineStyle: { width: i ? 1 : 1.6, type: i ? "dashed" : "solid" },
      data: [[low, low * roof.bandwidth], [peak.rate / roof.bandwidth, peak.rate], [high, peak.rate]],
      endLabel: {
        show: !i && isHighest(roof, peak, j), color: style("--text"), backgroundColor: style("--background"), padding: [0, 3],
        formatter: near(roof, peak).map(({ name, rate }) => (isNarrow() ? name : `${name} ${text(rate, "flops/s")}`)).join(", "), align: "right", verticalAlign: "bottom", offset: [-4, -3], fontSize: 11,
      },
    })));
    return {
      ...frame(),
      legend: { ...frame().legend, data: [...phases, ...new Set(data.roofs.map((roof) => roof.name))], icon: undefined },
      grid: { ...frame().grid, bottom: 30 },
      xAxis: axis({ type: "log", min: low, max: high, name: "FLOP per byte", nameLocation: "middle", nameGap: 26 }),
      yAxis: axis({ type: "log", min: 10 ** Math.floor(Math.log10(Math.min(...ys, ...peaks))), max: 2 * Math.max(...ys, ...peaks), axisLabel: { formatter: (value) => text(value, "flops/s"), showMaxLabel: false } }),
      series: [...phases.map((phase, i) => ({
        type: "scatter", name: phase, cursor: "default", symbol: "circle", itemStyle: { opacity: 0.8, color: colorOf(phase, i), borderColor: style("--background"), borderWidth: 1 },
        data: data.points.filter((point) => point.phase === phase).map((point) => ({ value: [point.intensity, point.rate], point })),
        symbolSize: (_, item) => 7 + 24 * Math.sqrt(item.data.point.ns / longest), z: 3,
      })), ...roofs],
      tooltip: tip(({ data: { point } }) => (point
        ? `<b>${short(point.name)}</b>, ${safe(point.phase)}<br>${text(point.ns, "ns")}, ${text(point.rate, "flops/s")}<br>${number(point.intensity)} FLOP per byte`
        : ""), { trigger: "item" }),
    };
  },
};

// The wheel zooms with Ctrl pressed, so that it still scrolls the page; the bar below works on touch screens.
function zoomBars(more = {}) {
  const shared = { filterMode: "none", ...more };
  return [
    { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, preventDefaultMouseMove: false, ...shared },
    {
      type: "slider", height: 16, bottom: 4, borderColor: style("--line"), backgroundColor: style("--surface"), textStyle: { color: style("--muted") },
      dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } }, selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
      showDetail: false, brushSelect: false, ...shared,
    },
  ];
}
