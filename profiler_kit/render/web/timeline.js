// The lanes of one step: phases, modules, kernels, communication and idle time. Zoom, pan and search, also by keyboard.
draw.timeline = function timeline(element, data, chart, tools) {
  const { lanes, names, boxes } = data, end = Math.max(1, ...boxes.map((box) => box[2]));
  const families = new Map();
  const family = (name) => data.families?.[name] || names[name];
  boxes.forEach((box) => { if (!families.has(family(box[3]))) families.set(family(box[3]), families.size); });
  let view = [0, 100], wanted = "";
  const search = named(create("input", { type: "search", placeholder: "Search the timeline" }), "Search the timeline");
  search.oninput = () => { wanted = search.value.toLowerCase(); show(); };
  const move = (from, to) => {
    const width = Math.min(100, Math.max(0.01, to - from)), start = Math.min(100 - width, Math.max(0, from));
    chart.dispatchAction({ type: "dataZoom", start, end: start + width });
  };
  const zoom = (factor) => { const middle = (view[0] + view[1]) / 2, half = ((view[1] - view[0]) * factor) / 2; move(middle - half, middle + half); };
  const pan = (part) => { const by = (view[1] - view[0]) * part; move(view[0] + by, view[1] + by); };
  tools.append(
    named(button("+", () => zoom(0.5)), "Zoom in"), named(button("−", () => zoom(2)), "Zoom out"),
    named(button("‹", () => pan(-0.4)), "Earlier"), named(button("›", () => pan(0.4)), "Later"), button("Whole step", () => move(0, 100)), search,
  );
  const legend = create("div", { className: "legend" });
  for (const name of [...families.keys()].filter((one) => COLORS[one])) {
    const chip = create("i");
    chip.style.background = COLORS[name];
    legend.append(create("span", {}, chip, IDLE.has(name) ? `idle: ${name}` : name));
  }
  tools.after(legend);
  chart.on("datazoom", () => { const { start, end: stop } = chart.getOption().dataZoom[0]; view = [start, stop]; });
  // In lanes of idle time only the cause matters; a short name of the lane leaves more room.
  const laneName = (name) => cut(name.replace(/^host thread /, "thread "), isNarrow() ? 14 : 30);

  function item(params, api) {
    const [x, y] = api.coord([api.value(1), api.value(0)]), [to] = api.coord([api.value(2), api.value(0)]);
    const thick = 0.82 * api.size([0, 1])[1], area = params.coordSys, name = names[api.value(3)];
    const left = Math.max(x, area.x), right = Math.min(to, area.x + area.width);
    if (right < left || right < area.x || left > area.x + area.width) return undefined;
    const width = Math.max(0.8, right - left), isMatch = !wanted || name.toLowerCase().includes(wanted);
    return {
      type: "rect", shape: { x: left, y: y - thick / 2, width, height: thick },
      style: { fill: colorOf(family(api.value(3)), families.get(family(api.value(3)))), opacity: isMatch ? 1 : 0.15 },
      textContent: width > 36 && isMatch ? { style: { text: name, fill: "#fff", width: width - 8, overflow: "truncate", fontSize: 11, textShadowColor: "rgba(0,0,0,.55)", textShadowBlur: 3 } } : undefined,
      textConfig: { position: "insideLeft" },
    };
  }
  function show() {
    element.style.height = `${74 + 27 * lanes.length}px`;
    fit(chart);
    chart.setOption({
      ...frame(), grid: { left: 4, right: 20, top: 4, bottom: 42, containLabel: true },
      xAxis: axis({ type: "value", min: 0, max: end, splitNumber: isNarrow() ? 3 : 8, axisLabel: { formatter: (value) => text(value, "ns"), showMaxLabel: false, hideOverlap: true } }),
      yAxis: nameAxis(lanes, { interval: 0, formatter: laneName }),
      dataZoom: zoomBars({ start: view[0], end: view[1], filterMode: "weakFilter", labelFormatter: (value) => text(value, "ns") }),
      series: [{ type: "custom", clip: true, data: boxes, dimensions: ["lane", "start", "end", "name"], encode: { x: [1, 2], y: 0 }, progressive: 4000, renderItem: item }],
      tooltip: tip(({ value: [lane, start, stop, name] }) =>
        `<b>${short(names[name])}</b><br>${short(lanes[lane])}<br>${text(stop - start, "ns")}, from ${start ? text(start, "ns") : "the start"}`),
    }, true);
  }
  element.tabIndex = 0;
  element.setAttribute("role", "application");
  element.setAttribute("aria-roledescription", "timeline");
  element.onkeydown = (event) => {
    const moves = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => zoom(0.7), ArrowDown: () => zoom(1.4), "+": () => zoom(0.5), "-": () => zoom(2), Escape: () => move(0, 100) };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  };
  show();
  return show;
};
