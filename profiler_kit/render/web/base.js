// Shared by the scripts of the page: theme, colors, numbers as text, elements. All of them run in one function.
const root = document.documentElement;
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");
const THEMES = ["auto", "light", "dark"];
const isDark = () => !printing.matches && (root.dataset.theme === "dark" || (root.dataset.theme !== "light" && darkSystem.matches));
const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// COLORS and PALETTE are those of pictures: phases, causes of idle time and kinds of kernels have one color in all charts.
const colorOf = (name, index) => COLORS[name] || PALETTE[index % PALETTE.length];
// The text color that is easier to read on a color.
function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1a2230" : "#fff";
}

const STEPS = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]],
  bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  flops: [[1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"], [1, "FLOP"]],
  "flops/s": [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1, "FLOP/s"]],
  count: [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]],
};
const FIXED = { ratio: "x" }; // units that are written the same at any size
const number = (value) => Number(value.toPrecision(4)).toString();
function text(value, unit) {
  const steps = STEPS[unit];
  if (!value || !steps) return number(value || 0) + (FIXED[unit] || "");
  const [size, name] = steps.find(([limit]) => Math.abs(value) >= limit) || steps.at(-1);
  return `${number(value / size)} ${name}`.trim();
}
const signed = (value, unit) => (value > 0 ? "+" : value < 0 ? "-" : "") + text(Math.abs(value), unit);
const cut = (name, length) => (name.length <= length ? name : `${name.slice(0, length / 2)}…${name.slice(-length / 2)}`);
const percent = (part, whole) => `${number(whole ? (100 * part) / whole : 0)} %`;

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

// Opens everything folded around an element.
function reveal(element) {
  for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}
// Zooms the module trees of the page; set by each icicle that is drawn.
const zoomers = new Map();
// Functions that show all rows of a table, or again a window on them; and those that show and return the row with an id.
const windows = [], rowFinders = [];
