"use strict";
(() => {
  const { make, find, overlay, applyTheme, breakable } = page;
  const SAME = 1e-3; // Distance of an image to itself, with rounding.
  const mostExplained = Number(document.body.dataset.explained);
  const guarantee = JSON.parse(document.body.dataset.guarantee);
  let query = null; // { source, words, body or position }
  let answer = null; // { neighbors, explanation }
  let asked = 0;

  const status = (words, isError = false) => {
    find("status").textContent = words;
    find("status").classList.toggle("error", isError);
    // A dialog is above the page: the error is shown in it too.
    find("why-said").hidden = !isError;
    find("why-said").textContent = isError ? words : "";
  };
  async function ask(path, settings, of) {
    const words = new URLSearchParams(settings);
    if (of.position !== undefined) words.set("position", of.position);
    const response = await fetch(`${path}?${words}`, {
      method: "POST", body: of.body || null,
      headers: of.body ? { "Content-Type": "application/octet-stream" } : {},
    });
    const found = await response.json();
    if (!response.ok) throw new Error(found.error);
    return found;
  }

  async function search() {
    if (!query) return;
    const turn = ++asked;
    const of = query;
    status("Searching …");
    try {
      const settings = { k: find("k").value || 12 };
      if (find("label").value) settings.label = find("label").value;
      const found = await ask("search", settings, of);
      if (turn !== asked) return;
      answer = { neighbors: found.neighbors, explanation: null };
      draw();
      const places = found.neighbors.slice(0, mostExplained).map((one) => one.position);
      if (!places.length) return;
      const explanation = await ask("explain", { neighbors: places.join(",") }, of);
      if (turn !== asked) return;
      answer.explanation = explanation;
      draw();
    } catch (error) {
      if (turn !== asked) return;
      if (answer === null || !(error instanceof TypeError)) status(error.message, true);
      else status("The server does not answer; is it still running?", true);
    }
  }

  const showsWeights = () => find("overlay") !== null && find("overlay").checked && answer.explanation !== null;
  function framed(source, words, map, isOwn = false) {
    return make("span", { class: isOwn ? "frame own" : "frame" }, make("img", { src: source, alt: words }),
      showsWeights() && map ? overlay(map, answer.explanation.shape) : null);
  }
  function neighbor(one, rank) {
    const limit = find("threshold").value === "" ? null : Number(find("threshold").value);
    const isMatch = limit !== null && one.distance <= limit;
    const words = `neighbor ${rank + 1}: ${one.label}, distance ${one.distance.toFixed(3)}${limit === null ? "" : isMatch ? ", match" : ", no match"}`;
    const why = answer.explanation && answer.explanation.neighbors[one.position];
    const shown = framed(`image/${one.position}`, words, why && why.weights);
    if (limit !== null) shown.append(make("span", { class: "badge", "aria-hidden": "true" }, isMatch ? "✓ match" : "✗"));
    return make("button", {
      type: "button", title: `${one.label}, ${one.name}`, disabled: !why,
      class: `neighbor ${limit === null ? "plain" : isMatch ? "" : "wrong"}`,
      onclick: () => explain(one, why),
    }, shown, make("span", { class: "under" }, ...breakable(one.label || one.name)),
    one.distance < SAME ? make("span", { class: "under strong" }, "this is the query") : null,
    make("span", { class: "under quiet" }, one.distance.toFixed(3)));
  }
  // How many of the first neighbors hold the right class, among all classes.
  function shortlist(neighbors) {
    if (!guarantee || !neighbors.length || find("label").value) return "";
    if (neighbors[0].distance > guarantee.novelty_distance) return " Nothing like it in the gallery.";
    const size = neighbors.filter((one) => one.distance <= guarantee.radius).length;
    return ` Shortlist: the first ${size}${size === neighbors.length ? " and more" : ""}, ${100 * guarantee.coverage} % hold the right class.`;
  }
  function draw() {
    if (!answer) return;
    const limit = find("threshold").value === "" ? null : Number(find("threshold").value);
    const matches = answer.neighbors.filter((one) => limit !== null && one.distance <= limit);
    const count = answer.neighbors.length;
    status(`${count} neighbor${count === 1 ? "" : "s"}${limit === null ? "" : `, ${matches.length} of them ${matches.length === 1 ? "a match" : "matches"}`}.${shortlist(answer.neighbors)}`);
    const isKnown = matches.length > 0;
    find("found").replaceChildren(make("div", { class: "result" },
      make("div", { class: "asked" },
        framed(query.source, `query: ${query.words}`, answer.explanation && answer.explanation.query, true),
        make("span", { class: "under" }, ...breakable(`query: ${query.words}`)),
        limit === null ? null : make("span", { class: `verdict ${isKnown ? "" : "wrong"}` },
          isKnown ? "✓ in the gallery" : "✗ nothing near enough")),
      make("div", { class: "strip" }, ...answer.neighbors.map(neighbor))));
  }
  function explain(one, why) {
    const { query: weights, shape } = answer.explanation;
    page.showWhy({
      words: `Inner product ${why.similarity.toFixed(3)}, distance ${one.distance.toFixed(3)}.`,
      pictures: [[query.source, `query: ${query.words}`], [`image/${one.position}`, `neighbor: ${one.label}`]],
      shape, similarity: why.similarity, weights: [weights, why.weights],
      parts: why.prototypes.map((part) => ({
        prototype: part.prototype, share: part.share, maps: [part.query, part.neighbor],
      })),
    });
  }

  /* ---- what is searched with ---- */
  function start(next) {
    query = next;
    answer = null;
    find("found").replaceChildren();
    search();
  }
  // The part of an image that is embedded, where the browser can read it.
  async function embeddedSquare(file) {
    const image = await createImageBitmap(file);
    const crop = Number(document.body.dataset.crop);
    const side = Math.max(1, Math.round(Math.min(image.width, image.height) * crop));
    const [width, height] = crop ? [side, side] : [image.width, image.height];
    const canvas = make("canvas", { width: 224, height: 224 });
    canvas.getContext("2d").drawImage(image, (image.width - width) / 2, (image.height - height) / 2, width, height, 0, 0, 224, 224);
    return canvas.toDataURL();
  }
  async function useFile(file) {
    if (!file) return;
    find("drop-words").textContent = `${file.name} (choose or drop another)`;
    const source = await embeddedSquare(file).catch(() => "data:,");
    start({ source, words: file.name, body: file });
  }
  find("file").addEventListener("change", (event) => useFile(event.target.files[0]));
  const drop = find("drop");
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    useFile(event.dataTransfer.files[0]);
  });
  // A file dropped beside the field must not replace the page.
  for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault());
  document.querySelectorAll("[data-example]").forEach((button) => button.addEventListener("click", () => {
    const picture = button.querySelector("img");
    start({ source: picture.getAttribute("src"), words: picture.alt, position: button.dataset.example });
  }));
  for (const name of ["k", "label"]) find(name).addEventListener("change", search);
  find("threshold").addEventListener("input", () => { find("threshold-range").value = find("threshold").value || 0; draw(); });
  find("threshold-range").addEventListener("input", () => { find("threshold").value = find("threshold-range").value; draw(); });
  if (find("overlay")) find("overlay").addEventListener("change", draw);
  applyTheme();
})();
