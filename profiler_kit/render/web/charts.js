"use strict";
// Draws the charts of the page from the JSON in #charts, and adds filters and copying to its tables.
(() => {
  const { echarts } = vendor;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const printing = matchMedia("print");
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Colors that people with any color vision can tell apart (Okabe and Ito).
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7f8794"];
  const STEPS = {
    ns: [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]],
    bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
    flops: [[1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"], [1, "FLOP"]],
    "flops/s": [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1, "FLOP/s"]],
    count: [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]],
  };
  const number = (value) => Number(value.toPrecision(4)).toString();
  function text(value, unit) {
    const steps = STEPS[unit];
    if (!steps || !value) return `${number(value || 0)}${steps ? ` ${steps.at(-1)[1]}` : ""}`.trim();
    const [size, name] = steps.find(([limit]) => Math.abs(value) >= limit) || steps.at(-1);
    return `${number(value / size)} ${name}`.trim();
  }
  // A tooltip is HTML: names come from models and traces.
  const safe = (value) => String(value).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const cut = (name, length) => (name.length <= length ? name : `${name.slice(0, length / 2)}…${name.slice(-length / 2)}`);

  function frame() {
    const muted = style("--muted");
    return {
      backgroundColor: "transparent", color: PALETTE, animation: false, aria: { enabled: true },
      textStyle: { color: style("--text"), fontFamily: "system-ui, sans-serif" },
      tooltip: {
        confine: true, backgroundColor: style("--surface"), borderColor: style("--line"), textStyle: { color: style("--text") },
      },
      legend: { textStyle: { color: style("--text") }, pageTextStyle: { color: muted }, type: "scroll", top: 0 },
      grid: { left: 8, right: 24, top: 36, bottom: 8, containLabel: true },
    };
  }
  const axis = (more) => ({
    axisLabel: { color: style("--muted"), ...more.axisLabel }, axisLine: { lineStyle: { color: style("--line") } },
    splitLine: { lineStyle: { color: style("--line") } }, nameTextStyle: { color: style("--muted") }, ...without(more, "axisLabel"),
  });
  // Labels of bytes are round in binary units.
  const valueAxis = (unit, most, more = {}) => axis({
    type: "value", axisLabel: { formatter: (value) => text(value, unit) },
    ...(unit === "bytes" && most > 0 ? { interval: 2 ** Math.round(Math.log2(most / 5)) } : {}), ...more,
  });
  const without = (object, key) => Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));
  const height = (rows) => `${Math.max(9, 5 + 2.1 * rows)}rem`;

  const draw = {
    bars(element, data) {
      element.style.height = height(data.rows.length);
      return {
        ...frame(),
        xAxis: valueAxis(data.unit, Math.max(...data.rows.map((_, i) => data.parts.reduce((sum, part) => sum + part.values[i], 0)))),
        yAxis: axis({ type: "category", inverse: true, data: data.rows, axisLabel: { formatter: (name) => cut(name, 40) } }),
        series: data.parts.map((part) => ({ type: "bar", stack: "all", name: part.name, data: part.values, barMaxWidth: 26 })),
        tooltip: {
          ...frame().tooltip, trigger: "axis", axisPointer: { type: "shadow" },
          formatter: (items) => [
            `<b>${safe(items[0].name)}</b>: ${text(items.reduce((sum, item) => sum + item.value, 0), data.unit)}`,
            ...items.filter((item) => item.value).map((item) => `${item.marker}${safe(item.seriesName)} ${text(item.value, data.unit)}`),
          ].join("<br>"),
        },
      };
    },

    intervals(element, data) {
      const rows = data.rows;
      element.style.height = height(rows.length);
      const baseline = rows.find((row) => row.name === data.baseline);
      return {
        ...frame(),
        grid: { ...frame().grid, top: 12 },
        xAxis: valueAxis(data.unit, 0, { min: 0 }),
        yAxis: axis({ type: "category", inverse: true, data: rows.map((row) => row.name), axisLabel: { formatter: (name) => cut(name, 40) } }),
        series: [{
          type: "custom",
          data: rows.map((row, i) => [row.value, i, row.low ?? row.value, row.high ?? row.value]),
          encode: { x: [0, 2, 3], y: 1 },
          renderItem(_, api) {
            const [x, y] = api.coord([api.value(0), api.value(1)]);
            const [low] = api.coord([api.value(2), api.value(1)]);
            const [high] = api.coord([api.value(3), api.value(1)]);
            const faster = baseline && api.value(3) < (baseline.low ?? baseline.value);
            const stroke = api.value(1) === rows.indexOf(baseline) ? style("--muted") : faster ? PALETTE[2] : PALETTE[0];
            return { type: "group", children: [
              { type: "line", shape: { x1: low, y1: y, x2: high, y2: y }, style: { stroke, lineWidth: 3 } },
              { type: "circle", shape: { cx: x, cy: y, r: 6 }, style: { fill: stroke } },
            ] };
          },
        }],
        tooltip: {
          ...frame().tooltip,
          formatter: ({ dataIndex }) => {
            const row = rows[dataIndex];
            const ratio = baseline && row !== baseline ? `<br>${number(row.value / baseline.value)}x ${safe(baseline.name)}` : "";
            return `<b>${safe(row.name)}</b><br>${text(row.value, data.unit)}` +
              (row.low === undefined ? "" : ` (${text(row.low, data.unit)} to ${text(row.high, data.unit)})`) + ratio;
          },
        },
      };
    },

    timeline(element, data) {
      element.style.height = `${6 + 1.6 * data.lanes.length}rem`;
      const end = Math.max(...data.boxes.map((box) => box[2]));
      const fill = (name) => PALETTE[name % PALETTE.length]; // one color per phase, module and idle cause
      return {
        ...frame(),
        grid: { left: 8, right: 16, top: 8, bottom: 44, containLabel: true },
        xAxis: axis({ type: "value", min: 0, max: end, axisLabel: { formatter: (value) => text(value, "ns") } }),
        yAxis: axis({ type: "category", inverse: true, data: data.lanes, axisLabel: { formatter: (name) => cut(name, 34) } }),
        dataZoom: [{ type: "inside", filterMode: "weakFilter" }, { type: "slider", height: 16, bottom: 6, filterMode: "weakFilter", labelFormatter: (value) => text(value, "ns") }],
        series: [{
          type: "custom", clip: true, data: data.boxes, dimensions: ["lane", "start", "end", "name"], encode: { x: [1, 2], y: 0 },
          progressive: 4000,
          renderItem(params, api) {
            const [x, y] = api.coord([api.value(1), api.value(0)]), [to] = api.coord([api.value(2), api.value(0)]);
            const thick = 0.8 * api.size([0, 1])[1], area = params.coordSys;
            const left = Math.max(x, area.x), right = Math.min(to, area.x + area.width);
            if (right <= left) return undefined;
            const width = Math.max(0.7, right - left);
            return {
              type: "rect", shape: { x: left, y: y - thick / 2, width, height: thick },
              style: { fill: fill(api.value(3)) },
              textContent: width > 40 ? { style: {
                text: data.names[api.value(3)], fill: "#fff", width: width - 6, overflow: "truncate", fontSize: 10,
              } } : undefined,
              textConfig: { position: "insideLeft" },
            };
          },
        }],
        tooltip: {
          ...frame().tooltip,
          formatter: ({ value: [lane, start, stop, name] }) =>
            `<b>${safe(cut(data.names[name], 120))}</b><br>${safe(data.lanes[lane])}<br>${text(stop - start, "ns")}, from ${text(start, "ns")}`,
        },
      };
    },

    waterfall(element, data) {
      const rows = data.rows;
      element.style.height = height(rows.length);
      const low = Math.min(...rows.filter((row) => !row.total).flatMap((row) => [row.start, row.end]));
      const high = Math.max(...rows.map((row) => Math.max(row.start, row.end)));
      // Where the changes are small, the axis begins near them: the first and the last bar are cut.
      const min = low > 0.5 * high ? Math.max(0, low - 0.3 * (high - low)) : Math.min(0, low);
      return {
        ...frame(),
        grid: { ...frame().grid, top: 12 },
        xAxis: valueAxis(data.unit, high - min, { min }),
        yAxis: axis({ type: "category", inverse: true, data: rows.map((row) => row.name), axisLabel: { formatter: (name) => cut(name, 40) } }),
        series: [{
          type: "custom", data: rows.map((row, i) => [row.start, i, row.end]), encode: { x: [0, 2], y: 1 }, clip: true,
          renderItem(_, api) {
            const row = rows[api.value(1)];
            const [from, y] = api.coord([Math.max(min, api.value(0)), api.value(1)]), [to] = api.coord([Math.max(min, api.value(2)), api.value(1)]);
            const thick = Math.min(22, 0.7 * api.size([0, 1])[1]);
            return {
              type: "rect", shape: { x: Math.min(from, to), y: y - thick / 2, width: Math.max(1, Math.abs(to - from)), height: thick },
              style: { fill: row.total ? style("--muted") : row.end > row.start ? PALETTE[5] : PALETTE[2] },
            };
          },
        }],
        tooltip: {
          ...frame().tooltip,
          formatter: ({ dataIndex }) => {
            const row = rows[dataIndex], change = row.end - row.start;
            return `<b>${safe(row.name)}</b><br>${!row.total && change > 0 ? "+" : ""}${text(change, data.unit)}`;
          },
        },
      };
    },

    lines(element, data) {
      return {
        ...frame(),
        xAxis: axis({ type: "category", data: data.points.map((_, i) => i + 1), name: "operator", nameLocation: "middle", nameGap: 24 }),
        yAxis: valueAxis(data.unit, Math.max(...data.lines.flatMap((line) => line.values))),
        grid: { ...frame().grid, bottom: 60 },
        dataZoom: [{ type: "inside" }, { type: "slider", height: 18, bottom: 8 }],
        series: data.lines.map((line) => ({
          type: "line", name: line.name, data: line.values, step: "end", showSymbol: false, areaStyle: { opacity: 0.2 }, sampling: "max",
        })),
        tooltip: {
          ...frame().tooltip, trigger: "axis",
          formatter: (items) => [
            `<b>${safe(data.points[items[0].dataIndex])}</b>`,
            ...items.map((item) => `${item.marker}${safe(item.seriesName)} ${text(item.value, data.unit)}`),
          ].join("<br>"),
        },
      };
    },

    roofline(element, data) {
      const xs = data.points.map((point) => point.intensity), ys = data.points.map((point) => point.rate);
      const ridges = data.roofs.flatMap((roof) => roof.peaks.map((peak) => peak.rate / roof.bandwidth));
      const low = 10 ** Math.floor(Math.log10(Math.min(...xs))), high = 10 ** Math.ceil(Math.log10(Math.max(...xs, ...ridges) * 1.5));
      const longest = Math.max(...data.points.map((point) => point.ns));
      const phases = [...new Set(data.points.map((point) => point.phase))];
      const same = (roof, { rate }) => roof.peaks.filter((peak) => peak.rate === rate).map((peak) => peak.name).join(", ");
      const roofs = data.roofs.flatMap((roof, i) => roof.peaks.map((peak, j) => ({
        type: "line", name: `${peak.name}, ${roof.name}`, showSymbol: false, silent: true, color: PALETTE[5 + (i % 3)],
        lineStyle: { width: 1.5, type: i ? "dashed" : "solid" },
        data: [[low, low * roof.bandwidth], [peak.rate / roof.bandwidth, peak.rate], [high, peak.rate]],
        endLabel: { show: !i && !roof.peaks.some((other, k) => other.rate === peak.rate && k > j), formatter: same(roof, peak), color: style("--muted"), offset: [-40, -10] },
      })));
      return {
        ...frame(),
        legend: { ...frame().legend, data: phases },
        grid: { ...frame().grid, bottom: 28 },
        xAxis: axis({ type: "log", min: low, max: high, name: "FLOP per byte", nameLocation: "middle", nameGap: 26 }),
        yAxis: axis({ type: "log", min: 10 ** Math.floor(Math.log10(Math.min(...ys))), axisLabel: { formatter: (value) => text(value, "flops/s") } }),
        series: [...phases.map((phase) => ({
          type: "scatter", name: phase, cursor: "default", itemStyle: { opacity: 0.75 },
          data: data.points.filter((point) => point.phase === phase).map((point) => ({ value: [point.intensity, point.rate], point })),
          symbolSize: (_, item) => 6 + 22 * Math.sqrt(item.data.point.ns / longest),
        })), ...roofs],
        tooltip: {
          ...frame().tooltip, trigger: "item",
          formatter: ({ data: { point } }) => point
            ? `<b>${safe(point.name)}</b>, ${safe(point.phase)}<br>${text(point.ns, "ns")}, ${text(point.rate, "flops/s")}<br>` +
              `${number(point.intensity)} FLOP per byte`
            : "",
        },
      };
    },

    icicle(element, data, chart, tools) {
      const nodes = data.nodes, children = nodes.map(() => []);
      nodes.forEach((node, i) => { if (node.parent >= 0) children[node.parent].push(i); });
      const roots = nodes.flatMap((node, i) => (node.parent < 0 ? [i] : []));
      let key = data.sizes[0].key, root = roots[0], wanted = "";
      const unit = () => data.sizes.find((size) => size.key === key);
      const path = (i) => (i < 0 ? [] : [...path(nodes[i].parent), i]);

      const select = document.createElement("select");
      select.title = "What decides the width of a module";
      for (const size of data.sizes) select.add(new Option(`size: ${size.title}`, size.key));
      const search = Object.assign(document.createElement("input"), { type: "search", placeholder: "Search modules" });
      const crumbs = Object.assign(document.createElement("span"), { className: "crumbs" });
      tools.append(select, search, crumbs);
      select.onchange = () => { key = select.value; show(); };
      search.oninput = () => { wanted = search.value.toLowerCase(); show(); };

      function layout() {
        const boxes = [];
        const place = (i, depth, left, width) => {
          boxes.push([left, depth, left + width, i]);
          const total = nodes[i][key] || children[i].reduce((sum, child) => sum + nodes[child][key], 0);
          let at = left;
          for (const child of children[i]) {
            const part = total ? (width * nodes[child][key]) / total : 0;
            if (part > 0.0004) place(child, depth + 1, at, part);
            at += part;
          }
        };
        place(root, 0, 0, 1);
        return boxes;
      }
      // Color: share of the roofline from red (far below) to green (at it); gray where unknown.
      const fill = (node) => (node.share == null ? (dark.matches ? "#3d4a5c" : "#c3ccd8")
        : `hsl(${Math.round(1.3 * Math.min(100, node.share))} 55% ${dark.matches ? 36 : 72}%)`);
      const matches = (node) => !wanted || node.path.toLowerCase().includes(wanted) || node.type.toLowerCase().includes(wanted);

      function show() {
        const boxes = layout(), levels = 1 + Math.max(...boxes.map((box) => box[1]));
        element.style.height = `${Math.max(8, 1.75 * Math.min(levels, 24) + 1)}rem`;
        chart.resize();
        chart.setOption({
          ...frame(), grid: { left: 0, right: 0, top: 0, bottom: 0 },
          xAxis: { type: "value", min: 0, max: 1, show: false },
          yAxis: { type: "value", min: 0, max: levels, inverse: true, show: false },
          series: [{
            type: "custom", data: boxes, encode: { x: [0, 2], y: 1 }, clip: true,
            renderItem(_, api) {
              const node = nodes[api.value(3)];
              const [x, y] = api.coord([api.value(0), api.value(1)]), [right, bottom] = api.coord([api.value(2), api.value(1) + 1]);
              const width = right - x - 1, label = node.name;
              return {
                type: "rect", shape: { x, y, width: Math.max(0.5, width), height: bottom - y - 1 },
                style: { fill: fill(node), opacity: matches(node) ? 1 : 0.25, stroke: style("--background"), lineWidth: 0 },
                textContent: width > 28 ? { style: {
                  text: label, fill: style("--text"), width: width - 6, overflow: "truncate", fontSize: 11,
                } } : undefined,
                textConfig: { position: "insideLeft" },
              };
            },
          }],
          tooltip: {
            ...frame().tooltip,
            formatter: ({ value }) => {
              const node = nodes[value[3]];
              return [
                `<b>${safe(node.path)}</b>`, safe(cut(node.type, 90)),
                ...data.sizes.filter((size) => node[size.key] != null).map((size) =>
                  `${size.title} ${text(node[size.key], size.unit)} (${number((100 * node[size.key]) / (nodes[roots[0]][size.key] || 1))} %)`),
                node.share == null ? "" : `${number(node.share)} % of the roofline`,
              ].filter(Boolean).join("<br>");
            },
          },
        }, true);
        crumbs.replaceChildren(...path(root).map((i, place) => {
          const button = Object.assign(document.createElement("button"), { textContent: place ? `› ${nodes[i].name}` : nodes[i].name });
          button.onclick = () => { root = i; show(); };
          return button;
        }));
      }
      chart.on("click", ({ value }) => {
        root = value[3] === root && nodes[root].parent >= 0 ? nodes[root].parent : value[3];
        show();
      });
      show();
      return show;
    },
  };

  function drawAll() {
    const data = JSON.parse(document.getElementById("charts").textContent);
    const drawn = [];
    const observer = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) { observer.unobserve(target); start(target); }
      }
    }, { rootMargin: "200px" });
    function start(element) {
      if (element.dataset.drawn) return;
      element.dataset.drawn = "yes";
      const { kind, data: figures } = data[Number(element.dataset.chart)];
      const chart = echarts.init(element, null, { renderer: "canvas" });
      const result = draw[kind](element, figures, chart, element.parentElement.querySelector(".tools"));
      const show = typeof result === "function" ? result : () => { chart.setOption(draw[kind](element, figures, chart), true); chart.resize(); };
      if (typeof result !== "function") { chart.resize(); chart.setOption(result); }
      drawn.push({ chart, show });
    }
    const elements = document.querySelectorAll("[data-chart]");
    for (const element of elements) observer.observe(element);
    addEventListener("resize", () => drawn.forEach(({ chart }) => chart.resize()));
    dark.addEventListener("change", () => drawn.forEach(({ show }) => show()));
    addEventListener("beforeprint", () => { elements.forEach(start); drawn.forEach(({ chart }) => chart.resize()); });
    printing.addEventListener("change", () => drawn.forEach(({ show }) => show()));
  }

  function csv(table) {
    const quoted = (cell) => `"${(cell.dataset.sort ?? cell.textContent).replaceAll('"', '""')}"`;
    return [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(quoted).join(",")).join("\n");
  }

  function addTools(scroll) {
    const table = scroll.querySelector("table");
    const tools = Object.assign(document.createElement("div"), { className: "tools" });
    const rows = table.tBodies[0].rows;
    if (rows.length > 5) {
      const filter = Object.assign(document.createElement("input"), { type: "search", placeholder: `Filter ${rows.length} rows` });
      filter.oninput = () => {
        const wanted = filter.value.toLowerCase();
        for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      };
      tools.append(filter);
    }
    const copy = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy as CSV" });
    copy.onclick = async () => {
      await navigator.clipboard.writeText(csv(table));
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy as CSV"; }, 1500);
    };
    tools.append(copy);
    scroll.before(tools);
  }

  document.querySelectorAll(".scroll").forEach(addTools);
  drawAll();
})();
