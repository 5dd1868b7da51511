// Bundles the libraries of report.html: `npm ci && npm run build`. Users need neither node nor network.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";

const OUT = new URL("../../profiler_kit/render/web/", import.meta.url).pathname;
const LIBRARIES = [
  ["echarts", "LICENSE", "NOTICE"],
  ["zrender", "LICENSE"],
  ["tslib", "LICENSE.txt"],
];

const versions = LIBRARIES.map(([name]) => {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  return `${name} ${version} (${license})`;
});
await build({
  entryPoints: ["src/vendor.js"], outfile: `${OUT}vendor.js`, bundle: true, minify: true, format: "iife", globalName: "vendor",
  target: "es2020", legalComments: "none", banner: { js: `/* ${versions.join(", ")}; licenses: vendor-licenses.txt */` },
});
const texts = LIBRARIES.map(([name, ...files], i) => {
  const text = files.map((file) => readFileSync(`node_modules/${name}/${file}`, "utf8").trim()).join("\n\n");
  return `${versions[i]}\n${"=".repeat(versions[i].length)}\n\n${text}\n`;
});
writeFileSync(`${OUT}vendor-licenses.txt`, texts.join("\n\n"));
