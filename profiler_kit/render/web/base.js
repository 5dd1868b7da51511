// Shared by the scripts of the page: theme, colors, numbers as text, elements. All of them run in one function.
const { echarts } = vendor;
const root = document.documentElement;
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");
const THEMES = ["auto", "light", "dark"];
const isDark = () => !printing.matches && (root.dataset.theme === "dark" || (root.dataset.theme !== "light" && darkSystem.matches));
const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// Colors that people with any color vision can tell apart (Okabe and Ito).
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7f8794"];
// Phases, kinds of time and causes of idle time have the same color in all charts.
const COLORS = {
  data: "#8a7f00", transfer: "#56b4e9", forward: "#0072b2", loss: "#e69f00", backward: "#009e73", recompute: "#44bb99",
  optimizer: "#cc79a7", communication: "#9467bd", "exposed communication": "#9467bd", other: "#7f8794", unattributed: "#a3aab4",
  "(unattributed)": "#a3aab4", busy: "#0072b2", computation: "#0072b2", idle: "#c9a18a",
  "waiting for data": "#b5651d", synchronization: "#c0392b", "op dispatch": "#e08a5b", python: "#d4b106", "launch latency": "#b98b82",
  compilation: "#7d3c98", "cold start": "#5d6d7e", "memory allocation": "#2e8b8b", "another stream": "#6b8fb3", unknown: "#a3aab4",
};
const IDLE = new Set(["waiting for data", "synchronization", "op dispatch", "python", "launch latency", "compilation", "cold start", "memory allocation", "another stream", "unknown"]);
const colorOf = (name, index) => COLORS[name] || COLORS[name.replace(/^idle: /, "")] || PALETTE[index % PALETTE.length];

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
  if (!value || !steps) return number(value || 0);
  const [size, name] = steps.find(([limit]) => Math.abs(value) >= limit) || steps.at(-1);
  return `${number(value / size)} ${name}`.trim();
}
const signed = (value, unit) => (value > 0 ? "+" : value < 0 ? "-" : "") + text(Math.abs(value), unit);
// A tooltip is HTML: names come from models and traces.
const safe = (value) => String(value).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const cut = (name, length) => (name.length <= length ? name : `${name.slice(0, length / 2)}…${name.slice(-length / 2)}`);
const short = (name) => safe(cut(name, 160));

// An element with properties and children. Text is set as text, never as HTML.
function create(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
function button(label, action, properties = {}) {
  return create("button", { type: "button", textContent: label, onclick: action, ...properties });
}
function named(element, label) {
  element.setAttribute("aria-label", label);
  return element;
}

// The width of a chart: that of the page, or of a sheet of paper.
let chartWidth = "auto";
const fit = (chart) => chart.resize({ width: chartWidth });

// Opens everything folded around an element.
function reveal(element) {
  for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}
// Zooms the module trees of the page; set by each icicle that is drawn.
const zoomers = new Map();
