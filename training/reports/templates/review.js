"use strict";
(() => {
  const { make, find } = page;
  const ORDER = ["keep", "relabel", "drop"];

  /* Path -> [decision, label]; of two decisions on an image the stronger. */
  function decided() {
    const found = new Map();
    for (const chosen of document.querySelectorAll("input[type=radio]:checked")) {
      const field = chosen.closest("label").querySelector("input[type=search]");
      const label = field ? field.value : "";
      for (const path of JSON.parse(chosen.dataset.paths)) {
        const before = found.get(path);
        if (before && ORDER.indexOf(before[0]) >= ORDER.indexOf(chosen.value)) continue;
        found.set(path, [chosen.value, label]);
      }
    }
    return found;
  }
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  function asCsv(found) {
    const rows = [...found].map(([path, [decision, label]]) => [path, decision, label]);
    return [["path", "decision", "label"], ...rows].map((row) => `${row.map(quoted).join(",")}\n`).join("");
  }
  function count() {
    const found = [...decided().values()];
    const number = (word) => found.filter(([decision]) => decision === word).length;
    find("status").textContent = ORDER.map((word) => `${number(word)} to ${word}`).join(", ");
  }
  function save() {
    const url = URL.createObjectURL(new Blob([asCsv(decided())], { type: "text/csv" }));
    const link = make("a", { href: url, download: "decisions.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  document.addEventListener("change", count);
  find("save").addEventListener("click", save);
  page.decisions = () => asCsv(decided());
})();
