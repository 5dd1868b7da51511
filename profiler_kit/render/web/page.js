// Draws the charts of the page when they come into view, and connects themes, links and printing.
const chartData = JSON.parse(document.getElementById("charts").textContent);
const chartElements = [...document.querySelectorAll("[data-chart]")];
const drawn = new Map();

function start(element) {
  if (drawn.has(element)) return;
  const { kind, data } = chartData[Number(element.dataset.chart)];
  drawn.set(element, draw[kind](element, data, element.parentElement.querySelector(".tools")));
  drawn.get(element)();
  widths.set(element, element.clientWidth);
  resizes.observe(element);
}
const redraw = () => drawn.forEach((show, element) => { if (element.clientWidth) show(); });
const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) { observer.unobserve(target); start(target); }
}, { rootMargin: "300px" });
chartElements.forEach((element) => observer.observe(element));
// Charts follow the width of the page, and are drawn when something around them unfolds.
const widths = new Map();
const resizes = new ResizeObserver((entries) => {
  for (const { target, contentRect: { width } } of entries) if (width && widths.get(target) !== width) { widths.set(target, width); drawn.get(target)(); }
});

// Theme: the system's, or the user's choice.
function setTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  themeButton.textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[theme];
  named(themeButton, `Theme: ${theme}. Change the theme`);
  redraw();
}
const themeButton = button("", () => setTheme(THEMES[(THEMES.indexOf(root.dataset.theme || "auto") + 1) % THEMES.length]), { className: "theme" });
document.querySelector("header").append(themeButton);
setTheme("auto");
darkSystem.addEventListener("change", redraw);

// Links to findings and layers unfold what is around the target.
function follow(hash) {
  const id = decodeURIComponent(hash.slice(1)), row = id && rowFinders.map((find) => find(id)).find(Boolean);
  const target = id ? row || document.getElementById(id) : null;
  document.querySelector("tr.target")?.classList.remove("target");
  if (!target) return;
  if (row) row.classList.add("target");
  reveal(target);
  const own = target.querySelector(":scope > details");
  if (own) own.open = true;
  target.scrollIntoView({ block: target.tagName === "TR" ? "center" : "start" });
}
addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link) return;
  if (link.dataset.path !== undefined) {
    chartElements.filter((element) => chartData[Number(element.dataset.chart)].kind === "icicle").forEach(start);
    zoomers.forEach((zoom) => zoom(link.textContent));
  }
  if (link.hash === location.hash) follow(link.hash);
});
addEventListener("hashchange", () => follow(location.hash));

// On paper everything but the numbers behind findings is unfolded, and charts have the width of a sheet (A4 or Letter).
const PAPER = 680;
let closed = [];
function beforePrint() {
  closed = closed.length ? closed : [...document.querySelectorAll("details:not([open], .body details)")];
  closed.forEach((element) => { element.open = true; });
  windows.forEach((all) => all(true));
  chartWidth = PAPER;
  chartElements.forEach(start);
  redraw();
}
function afterPrint() {
  windows.forEach((all) => all(false));
  chartWidth = "auto";
  closed.forEach((element) => { element.open = false; });
  closed = [];
  redraw();
}
addEventListener("beforeprint", beforePrint);
addEventListener("afterprint", afterPrint);
printing.addEventListener("change", ({ matches }) => (matches ? beforePrint() : afterPrint()));

document.querySelectorAll(".scroll").forEach(addTools);
for (const box of document.querySelectorAll(".paste")) {
  const control = named(button("Copy", () => copy(box.querySelector("code").textContent, control)), "Copy this line");
  box.append(control);
}
follow(location.hash);
