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
  function say(words) {
    find("said").textContent = "";
    setTimeout(() => { find("said").textContent = words; }, 30);
  }

  /* ---- colors ---- */
  const THEMES = ["as the system", "light", "dark"];
  let theme = 0;
  try { theme = Math.max(0, THEMES.indexOf(localStorage.getItem("gsp-theme"))); }
  catch { /* a page from disk may have no storage */ }
  function applyTheme() {
    if (theme) root.dataset.theme = THEMES[theme];
    else delete root.dataset.theme;
    find("theme").textContent = `Colors: ${THEMES[theme]}`;
    try { localStorage.setItem("gsp-theme", THEMES[theme]); } catch { /* as above */ }
    redraws.forEach((redraw) => redraw());
  }
  find("theme").addEventListener("click", () => {
    theme = (theme + 1) % THEMES.length;
    applyTheme();
  });
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

  /* ---- why two images are near ---- */
  // The part of a picture, two cells wide, where a map is largest.
  function patch(source, text, [rows, columns], words) {
    const levels = decoded(text);
    const cell = levels.indexOf(Math.max(...levels));
    const canvas = make("canvas", { width: 48, height: 48, class: "patch", role: "img", "aria-label": words, title: words });
    const image = new Image();
    image.addEventListener("load", () => {
      const part = (whole, count, at) => {
        const side = Math.min(whole, 2 * whole / count);
        return [Math.max(0, Math.min((at + .5) * whole / count - side / 2, whole - side)), side];
      };
      const [x, width] = part(image.width, columns, cell % columns);
      const [y, height] = part(image.height, rows, Math.floor(cell / columns));
      canvas.getContext("2d").drawImage(image, x, y, width, height, 0, 0, 48, 48);
    });
    image.src = source;
    return canvas;
  }
  function showWhy({ words, pictures, shape, similarity, weights, parts }) {
    const pair = make("div", { class: "pair" });
    const show = (maps) => pair.replaceChildren(...pictures.map(([source, caption], i) =>
      make("figure", {},
        make("span", { class: "frame" }, make("img", { src: source, alt: caption }),
          maps ? overlay(maps[i], shape) : null),
        make("figcaption", { class: "under" }, caption))));
    const choice = (caption, maps, checked = false) => make("label", { class: "check" },
      make("input", { type: "radio", name: "part", checked, onchange: () => show(maps) }), ...[caption].flat());
    const patches = ({ prototype, maps }) => pictures.map(([source], i) =>
      patch(source, maps[i], shape, `prototype ${prototype}, its place in the ${i ? "neighbor" : "query"}`));
    const largest = Math.max(Math.abs(similarity), ...parts.map((part) => Math.abs(part.share)), 1e-9);
    const row = (label, share) => make("tr", {}, make("td", {}, label),
      make("td", { class: "n" }, share === null ? "" : share.toFixed(3)),
      make("td", {}, share === null ? "" : make("span", {
        class: share < 0 ? "share negative" : "share", style: `width:${100 * Math.abs(share) / largest}%`,
      })));
    const rest = similarity - parts.reduce((sum, part) => sum + part.share, 0);
    show(weights);
    find("why-body").replaceChildren(
      make("p", {}, words),
      make("div", { class: "why-grid" },
        make("div", {}, pair),
        make("div", {},
          make("table", { class: "shares", id: "t-shares" },
            make("caption", { class: "hidden" }, "What each prototype adds to the similarity"),
            make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "pooled here"),
              make("th", { scope: "col", class: "n" }, "adds"),
              make("th", { scope: "col" }, make("span", { class: "hidden" }, "as a bar")))),
            make("tbody", {},
              row(choice("nothing", null), null), row(choice("everything", weights, true), similarity),
              ...parts.map((part) => row(choice(patches(part), part.maps), part.share)),
              row("other prototypes", rest))),
          make("div", { class: "tools" }, make("button", { type: "button", "data-copy": "t-shares" }, "Copy as Markdown")))));
    find("why").showModal();
  }

  /* ---- tables as Markdown ---- */
  function cellText(cell) {
    const images = [...cell.querySelectorAll("img, canvas")];
    const text = cell.textContent.trim().replace(/\s+/g, " ").replaceAll("|", "\\|");
    return text || images.map((image) => image.alt || image.ariaLabel).join(", ");
  }
  function asMarkdown(table) {
    const rows = [...table.rows].filter((row) => !row.hidden)
      .map((row) => [...row.cells].map(cellText));
    const right = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("n"));
    rows.splice(1, 0, right.map((is) => (is ? "---:" : "---")));
    return rows.map((row) => `| ${row.join(" | ")} |\n`).join("");
  }
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", { class: "hidden" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const table = find(button.dataset.copy);
    await copy(asMarkdown(table));
    const words = button.textContent;
    button.textContent = "Copied";
    say("Table copied as Markdown");
    setTimeout(() => { button.textContent = words; }, 1500);
  });
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 700px)"]) {
    matchMedia(query).addEventListener("change", () => redraws.forEach((redraw) => redraw()));
  }
  return { make, find, say, color, isDark, overlay, redraws, applyTheme, showWhy, breakable };
})();
