// The lanes of one step: phases, modules, kernels, communication and idle time. Zoom, pan and search, also by keyboard.
const MIN_PIXELS = 0.8, FAINTEST = 0.2, PALE = 0.3;
draw.timeline = function timeline(element, data, chart, tools) {
  const { lanes, names, boxes, step_ns: stepEnd } = data, end = Math.max(1, ...boxes.map((box) => box[2]));
  const families = new Map();
  const family = (name) => data.families[name] || names[name];
  boxes.forEach((box) => { if (!families.has(family(box[3]))) families.set(family(box[3]), families.size); });
  let view = [0, 100], wanted = "", measured = null;
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
    legend.append(create("span", {}, chip, name));
  }
  tools.after(legend);
  chart.on("datazoom", () => { const { start, end: stop } = chart.getOption().dataZoom[0]; view = [start, stop]; });
  // A short name of the lane leaves more room.
  const laneName = (name) => cut(name.replace(/^host thread /, "thread "), isNarrow() ? 14 : 30);

  // Ranges over all lanes: the step on the host, where work of other steps is shown too, and what the user measures.
  const ranges = () => [...(stepEnd < end ? [[0, stepEnd]] : []), ...(measured ? [measured] : [])];
  function range(params, api) {
    const { x, y, width, height: high } = params.coordSys, at = (i) => Math.min(x + width, Math.max(x, api.coord([api.value(i), 0])[0]));
    const stroke = style(measured && api.value(0) === measured[0] && api.value(1) === measured[1] ? "--accent" : "--muted");
    return { type: "rect", shape: { x: at(0), y, width: at(1) - at(0), height: high }, style: { fill: stroke, fillOpacity: 0.08, stroke, lineDash: [4, 3] } };
  }
  const length = named(create("output"), "Measured time");
  tools.append(length);
  function measure(from, to) {
    measured = [Math.max(0, Math.min(from, to)), Math.min(end, Math.max(from, to))];
    length.textContent = `${text(measured[1] - measured[0], "ns")}, from ${text(measured[0], "ns")}`;
    chart.setOption({ series: [{ id: "ranges", data: ranges() }] });
  }
  // Before the chart, which would move.
  element.addEventListener("mousedown", (event) => {
    if (!event.shiftKey) return;
    event.stopPropagation();
    event.preventDefault();
    const at = ({ clientX }) => chart.convertFromPixel({ xAxisIndex: 0 }, clientX - element.getBoundingClientRect().left);
    const from = at(event), drag = (moved) => measure(from, at(moved));
    addEventListener("mousemove", drag);
    addEventListener("mouseup", () => removeEventListener("mousemove", drag), { once: true });
  }, true);

  function item(params, api) {
    const [x, y] = api.coord([api.value(1), api.value(0)]), [to] = api.coord([api.value(2), api.value(0)]);
    const thick = 0.82 * api.size([0, 1])[1], area = params.coordSys, name = names[api.value(3)];
    const left = Math.max(x, area.x), right = Math.min(to, area.x + area.width);
    if (right < left || right < area.x || left > area.x + area.width) return undefined;
    const width = Math.max(MIN_PIXELS, right - left), isMatch = !wanted || name.toLowerCase().includes(wanted);
    const fill = colorOf(family(api.value(3)), families.get(family(api.value(3))));
    // Many boxes share a pixel: one that covers a part of it has a part of its color, so that lanes do not look full.
    const covered = Math.max(FAINTEST, Math.min(1, (right - left) / MIN_PIXELS)), isPale = !isMatch || api.value(4);
    return {
      type: "rect", shape: { x: left, y: y - thick / 2, width, height: thick },
      style: { fill, opacity: covered * (isPale ? PALE : 1) },
      textContent: width > 36 && isMatch ? { style: { text: name, fill: isPale ? style("--text") : inkOn(fill), width: width - 8, overflow: "truncate", fontSize: 11 } } : undefined,
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
      series: [{ id: "boxes", type: "custom", z: 2, clip: true, data: boxes, dimensions: ["lane", "start", "end", "name", "other"], encode: { x: [1, 2], y: 0 }, progressive: 4000, renderItem: item }, { id: "ranges", type: "custom", z: 1, silent: true, clip: true, data: ranges(), encode: { x: [0, 1] }, renderItem: range }],
      tooltip: tip(({ value: [lane, start, stop, name, other] }) =>
        `<b>${short(names[name])}</b><br>${short(lanes[lane])}<br>${text(stop - start, "ns")}, from ${start ? text(start, "ns") : "the start"}${other ? "<br>of another step" : ""}`),
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
