// The lanes of one step: phases, modules, kernels, communication and idle time. Zoom, pan, search and measuring, also by keyboard.
const MIN_PIXELS = 0.8, FAINTEST = 0.2, PALE = 0.3, LANE = 27;
const FACTS = ["operator", "module", "line", "launch"]; // what is known about an event, in the order of the data
const together = []; // the views of timelines on a clock that several have, and where their common range begins
draw.timeline = function timeline(element, data, tools) {
  const { lanes, names, boxes } = data, end = boxes.reduce((last, box) => Math.max(last, box[2]), 1);
  const families = new Map(), family = (name) => data.families[name] || names[name];
  boxes.forEach((box) => { if (!families.has(family(box[3]))) families.set(family(box[3]), families.size); });
  const lowerNames = names.map((name) => name.toLowerCase());
  let wanted = "", measured = null, area = { left: 0, right: 1 };
  const draw = surface(element, { height: () => 30 + LANE * lanes.length, paint, at });
  const [low, high] = data.shared_ns || [0, end];
  const view = zooming(element, tools, [low, high], () => area, changed, "Whole step");
  const clock = (ns) => text(ns - low, "ns"); // a time, from the start of the step or of the common range
  // Timelines on one clock show the same time: each follows the one that the user moves.
  if (data.shared_ns) together.push({ view, low, clock: data.clock });
  function changed(isOwn) {
    draw();
    if (isOwn && data.shared_ns) for (const other of together) if (other.view !== view && other.clock === data.clock) other.view.move(view.from - low + other.low, view.to - low + other.low, false);
  }
  element.setAttribute("aria-roledescription", "timeline");
  const search = named(create("input", { type: "search", placeholder: "Search the timeline" }), "Search the timeline");
  search.oninput = () => { wanted = search.value.toLowerCase(); draw(); };
  const length = named(create("output"), "Measured time");
  const perfetto = button("Open in Perfetto", () => {
    if (!openInPerfetto(data, element.getAttribute("aria-label"))) length.textContent = "No window opened here. profiler-kit inspect TRACE --annotate OUT.json.gz writes the trace for ui.perfetto.dev.";
  });
  tools.append(search, perfetto, length);
  // The selected box, and what is known about it.
  let selected = null;
  const details = create("dl", { className: "details", hidden: true });
  details.setAttribute("role", "status");
  element.after(details);
  function select(box) {
    selected = box;
    element.dataset.selected = box ? boxes.indexOf(box) : "";
    details.hidden = !box;
    if (box) details.replaceChildren(...rowsAbout(box).filter(([, value]) => value).flatMap(([name, value]) => [create("dt", {}, name), create("dd", {}, value)]));
    draw();
  }
  function rowsAbout([lane, start, stop, name, isOther, facts, launch]) {
    const known = data.facts?.[facts] ?? [], isIdle = (data.families[name] || "").startsWith("idle: ");
    const rows = FACTS.map((fact, i) => [isIdle && i === 0 ? "ended by work of" : fact, known[i]]);
    if (launch !== undefined) rows[3][1] += isIdle ? `, at ${clock(launch)}` : `, ${text(start - launch, "ns")} before the work`;
    return [[isIdle ? "idle" : lanes[lane], names[name]], ["time", `${text(stop - start, "ns")}, from ${clock(start)}${isOther ? ", of another step" : ""}`], ...rows];
  }
  // The next or previous box of the lane of the selected one; another lane at its time.
  const ofLane = (lane) => boxes.filter((box) => box[0] === lane).sort((a, b) => a[1] - b[1]);
  function step(by) {
    const list = ofLane(selected?.[0] ?? 0), box = list[selected ? list.indexOf(selected) + by : 0];
    if (box) follow(box);
  }
  function change(by) {
    const lane = (selected?.[0] ?? -by) + by, time = selected?.[1] ?? view.from;
    const near = ofLane(lane).sort((a, b) => Math.abs(a[1] - time) - Math.abs(b[1] - time))[0];
    if (near) follow(near);
  }
  function follow(box) {
    const width = view.to - view.from, middle = (box[1] + Math.min(box[2], box[1] + width)) / 2;
    if (box[1] < view.from || box[1] > view.to) view.move(middle - width / 2, middle + width / 2);
    select(box);
  }
  const zoomKeys = element.onkeydown, keys = { n: () => step(1), p: () => step(-1), j: () => change(1), k: () => change(-1) };
  element.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && selected) select(null);
    else if (keys[event.key]) keys[event.key]();
    else zoomKeys(event);
  };
  legend(tools, [...families.keys()].filter((name) => COLORS[name]).map((name) => [name, COLORS[name]]));

  // The step on host and device, where work of other steps is shown too, and what the user measures.
  const steps = data.shared_ns || data.bands[0]?.[3] < end ? data.bands : [];
  const ranges = () => [...steps.map((band) => [...band, inks.muted]), ...(measured ? [[0, lanes.length - 1, ...measured, inks.accent]] : [])];
  function measure(from, to) {
    measured = [Math.max(low, Math.min(from, to)), Math.min(high, Math.max(from, to))];
    element.dataset.measured = measured.join(" ");
    length.textContent = `${text(measured[1] - measured[0], "ns")}, from ${clock(measured[0])}`;
    draw();
  }
  element.addEventListener("mousedown", (event) => {
    if (!event.shiftKey) return;
    event.preventDefault();
    const time = ({ clientX }) => view.at(clientX - element.getBoundingClientRect().left);
    const from = time(event), drag = (moved) => measure(from, time(moved));
    addEventListener("mousemove", drag);
    addEventListener("mouseup", () => removeEventListener("mousemove", drag), { once: true });
  });

  // A short name of the lane leaves more room.
  const laneName = (name) => (isNarrow() ? cut(name.replace(/ thread [^:]*/, ""), 20) : cut(name.replace(/^host thread /, "thread "), 32));
  function paint(kit, wide, high) {
    const labels = lanes.map(laneName);
    area = { left: gutter(kit, labels), top: 2, right: wide - 16, bottom: high - 24 };
    const scale = linear(view.from, view.to, area.left, area.right), inside = (ns) => Math.min(area.right, Math.max(area.left, scale(ns)));
    horizontalAxis(kit, area, scale, ticks(view.from - low, view.to - low, tickCount(area), "ns").map((ns) => ns + low), clock);
    rowsOf(kit, labels, area);
    for (const [first, last, from, to, color] of ranges()) {
      const [left, right] = [from, to].map(inside), above = area.top + first * LANE, tall = (last - first + 1) * LANE;
      if (right <= left) continue;
      kit.rect(left, above, right - left, tall, color, 0.08);
      kit.frame(left, above, right - left, tall, color, { dash: [4, 3] });
    }
    for (const [lane, start, stop, name, isOther] of boxes) {
      if (stop < view.from || start > view.to) continue;
      const left = inside(start), right = inside(stop), width = Math.max(MIN_PIXELS, right - left), isMatch = !wanted || lowerNames[name].includes(wanted);
      const fill = colorOf(family(name), families.get(family(name))), isPale = !isMatch || isOther, y = area.top + lane * LANE + 2;
      // Many boxes share a pixel: one that covers a part of it has a part of its color, so that lanes do not look full.
      const covered = Math.max(FAINTEST, Math.min(1, (right - left) / MIN_PIXELS));
      kit.rect(left, y, width, LANE - 5, fill, covered * (isPale ? PALE : 1));
      if (width > 36 && isMatch) kit.text(names[name], left + 4, y + (LANE - 5) / 2, { color: isPale ? inks.text : inkOn(fill), most: width - 8, size: 11 });
    }
    const links = (data.links || []).map((starts) => starts.filter(([, ns]) => ns >= view.from && ns <= view.to)).filter((starts) => starts.length > 1);
    element.dataset.links = links.length;
    for (const starts of links) paintLink(kit, starts.map(([lane, ns]) => [inside(ns), area.top + (lane + 0.5) * LANE]));
    if (selected) paintSelected(kit, inside, (lane) => area.top + lane * LANE + 2);
  }
  // A line through the starts of one collective on all ranks, with an arrow at the last, from where the line comes.
  function paintLink(kit, points) {
    const last = points.reduce((a, b) => (b[0] > a[0] ? b : a)), [x, y] = last, from = points.indexOf(last) ? -1 : 1;
    kit.line(points, inks.text);
    kit.area([[x, y], [x - 4, y + 9 * from], [x + 4, y + 9 * from]], inks.text, 1);
  }
  // A line from its launch, on the lane of launches that has it, to the selected work.
  function paintSelected(kit, inside, rowY) {
    const [lane, start, stop, , , , launch] = selected, left = inside(start), color = inks.accent;
    kit.frame(left - 1, rowY(lane) - 1, Math.max(3, inside(stop) - left + 2), LANE - 3, color, { thick: 2 });
    const call = launch === undefined ? null : boxes.find((box) => box[1] === launch && box[0] !== lane && box[5] !== undefined);
    if (call) kit.line([[inside(launch), rowY(call[0]) + LANE - 5], [left, rowY(lane)]], color, { thick: 1.5 });
  }
  // The box under the pointer; of boxes that share a pixel, the longest.
  function at(x, y) {
    const lane = Math.floor((y - area.top) / LANE), [from, to] = [view.at(x - 1), view.at(x + 1)];
    const near = boxes.filter((box) => box[0] === lane && box[2] >= from && box[1] <= to), time = view.at(x);
    const box = near.find((one) => one[1] <= time && time < one[2]) ?? near.sort((a, b) => b[2] - b[1] - (a[2] - a[1]))[0];
    return x >= area.left && box && { tip: () => describe(box), click: () => select(box === selected ? null : box) };
  }
  const describe = ([lane, start, stop, name, isOther]) => [
    names[name], lanes[lane], `${text(stop - start, "ns")}, from ${clock(start)}`, isOther ? "of another step" : "",
  ];
  return draw;
};
