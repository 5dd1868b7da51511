// Opens a timeline in Perfetto, which takes a trace from the page that opened it: ask until it answers, then send.
const PERFETTO = "https://ui.perfetto.dev";
const ASK_MS = 100;
const TOUCH_NS = 4; // viewers read times as floats: a box ends this much before one that begins at its end, or it is dropped

// The lanes as tracks of one process. Times are in us, from the start of the step.
function traceOf({ lanes, names, families, boxes, facts = [] }) {
  const starts = new Set(boxes.map(([lane, start]) => `${lane} ${start}`));
  const tracks = lanes.flatMap((name, lane) => [["thread_name", { name }], ["thread_sort_index", { sort_index: lane }]]
    .map(([kind, args]) => ({ ph: "M", name: kind, pid: 1, tid: lane + 1, args })));
  const slices = boxes.map(([lane, start, end, name, isOther, known]) => ({
    ph: "X", pid: 1, tid: lane + 1, name: names[name], ts: start / 1e3,
    dur: Math.max(0, end - start - (starts.has(`${lane} ${end}`) ? TOUCH_NS : 0)) / 1e3,
    args: Object.fromEntries([["kind", families[name]], ["step", isOther ? "another" : null], ...FACTS.map((fact, i) => [fact, facts[known]?.[i]])].filter(([, value]) => value)),
  }));
  return { traceEvents: [{ ph: "M", name: "process_name", pid: 1, args: { name: "profiler_kit" } }, ...tracks, ...slices] };
}

// Whether the browser opened a window for it.
function openInPerfetto(data, title) {
  const opened = open(PERFETTO);
  if (!opened) return false;
  const asking = setInterval(() => (opened.closed ? clearInterval(asking) : opened.postMessage("PING", PERFETTO)), ASK_MS);
  const answered = new AbortController();
  addEventListener("message", ({ data: answer, origin, source }) => {
    if (source !== opened || origin !== PERFETTO || answer !== "PONG") return;
    clearInterval(asking);
    answered.abort();
    const { buffer } = new TextEncoder().encode(JSON.stringify(traceOf(data)));
    opened.postMessage({ perfetto: { buffer, title, fileName: "timeline.json" } }, PERFETTO);
  }, { signal: answered.signal });
  return true;
}
