"use strict";
/* What the report and the search page share. */
const page = (() => {
  const root = document.documentElement;
  const find = (id) => document.getElementById(id);
  const redraws = [];

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) {
        element.setAttribute(name, value === true ? "" : value);
      }
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }
  // Lines break in names only after their signs.
  const breakable = (text) => text.split(/(?<=[-_,=/])(?=\S)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
  // Images of few pixels are drawn sharp. Load events do not bubble.
  document.addEventListener("load", ({ target }) => {
    if (target.tagName === "IMG" && target.naturalWidth < 80) target.classList.add("small");
  }, true);

  /* ---- colors ---- */
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isDark = () => getComputedStyle(root).colorScheme === "dark";

  /* ---- weights over images ---- */
  const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  function viridis(value) {
    const place = Math.min(value * 4, 3.9999);
    const low = Math.floor(place);
    return VIRIDIS[low].map((from, i) => from + (place - low) * (VIRIDIS[low + 1][i] - from));
  }
  const decoded = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  function overlay(text, shape) {
    const [rows, columns] = shape;
    const levels = decoded(text);
    const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(columns, rows);
    levels.forEach((level, i) => {
      const value = level / 255;
      const [r, g, b] = viridis(value);
      // What is left out is covered, what is pooled shines through.
      pixels.data.set([r, g, b, 190 - 90 * value], 4 * i);
    });
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  /* ---- tables as Markdown ---- */
  const cellText = (cell) => cell.textContent.trim().replace(/\s+/g, " ").replaceAll("|", "\\|");
  function asMarkdown(table) {
    const rows = [...table.rows].map((row) => [...row.cells].map(cellText));
    const right = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("n"));
    rows.splice(1, 0, right.map((is) => (is ? "---:" : "---")));
    return rows.map((row) => `| ${row.join(" | ")} |\n`).join("");
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const table = find(button.dataset.copy);
    await navigator.clipboard.writeText(asMarkdown(table));
    const words = button.textContent;
    button.textContent = "Copied";
    find("said").textContent = "Table copied as Markdown";
    setTimeout(() => { button.textContent = words; }, 1500);
  });
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 700px)"]) {
    matchMedia(query).addEventListener("change", () => redraws.forEach((redraw) => redraw()));
  }
  return { make, find, color, isDark, decoded, overlay, redraws, breakable };
})();
