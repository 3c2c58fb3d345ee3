"use strict";
(() => {
  const { make, find, decoded, overlay, breakable } = page;
  const SAME = 1e-3; // Distance of an image to itself, with rounding.
  const mostExplained = Number(document.body.dataset.explained);
  let query = null; // { source, words, body or position, box }
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
    if (of.box) words.set("box", of.box.join(","));
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
      const items = find("items") !== null && find("items").checked ? 1 : 0;
      const found = await ask("search", { k: find("k").value || 12, items }, of);
      if (turn !== asked) return;
      answer = { neighbors: found.neighbors, box: of.box || found.box, explanation: null };
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
  // A box, [left, top, width, height] in shares of the image.
  function placed(mark, box) {
    ["left", "top", "width", "height"].forEach((side, i) => { mark.style[side] = `${100 * box[i]}%`; });
    return mark;
  }
  // A box that is dragged over the query is searched with; a click takes all of it.
  function draggable(frame) {
    const place = (event) => {
      const { left, top, width, height } = frame.querySelector("img").getBoundingClientRect();
      return [(event.clientX - left) / width, (event.clientY - top) / height].map((at) => Math.min(Math.max(at, 0), 1));
    };
    let from = null;
    let mark = frame.querySelector(".box");
    const span = (to) => [...from.map((at, i) => Math.min(at, to[i])), ...from.map((at, i) => Math.abs(at - to[i]))];
    frame.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      from = place(event);
      frame.setPointerCapture(event.pointerId);
    });
    frame.addEventListener("pointermove", (event) => {
      if (!from) return;
      if (!mark) frame.append(mark = make("i", { class: "box" }));
      placed(mark, span(place(event)));
    });
    frame.addEventListener("pointerup", (event) => {
      if (!from) return;
      const box = span(place(event));
      from = null;
      query = { ...query, box: box[2] * box[3] > .001 ? box : null };
      search();
    });
    return frame;
  }
  const threshold = () => (find("threshold").value === "" ? null : Number(find("threshold").value));
  function neighbor(one, rank) {
    const limit = threshold();
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
    one.count ? make("span", { class: "under quiet" }, `${one.item === one.label ? "" : `${one.item}: `}${one.count} image${one.count === 1 ? "" : "s"}`) : null,
    one.distance < SAME ? make("span", { class: "under strong" }, "this is the query") : null,
    make("span", { class: "under quiet" }, one.distance.toFixed(3)));
  }
  function draw() {
    if (!answer) return;
    const limit = threshold();
    const matches = answer.neighbors.filter((one) => limit !== null && one.distance <= limit);
    const count = answer.neighbors.length;
    status(`${count} neighbor${count === 1 ? "" : "s"}${limit === null ? "" : `, ${matches.length} of them ${matches.length === 1 ? "a match" : "matches"}`}.`);
    const isKnown = matches.length > 0;
    const whole = query.box ? null : answer.explanation && answer.explanation.query;
    const own = framed(query.source, `query: ${query.words}`, whole, true);
    if (answer.box) own.append(placed(make("i", { class: "box" }), answer.box));
    find("found").replaceChildren(make("div", { class: "result" },
      make("div", { class: "asked" },
        draggable(own),
        make("span", { class: "under" }, ...breakable(`query: ${query.words}`)),
        limit === null ? null : make("span", { class: `verdict ${isKnown ? "" : "wrong"}` },
          isKnown ? "✓ in the gallery" : "✗ nothing near enough")),
      make("div", { class: "strip" }, ...answer.neighbors.map(neighbor))));
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
  // The part of an image in a box, of which its central square is embedded.
  async function cropped(source, [left, top, width, height]) {
    const image = new Image();
    image.src = source;
    await image.decode();
    const crop = Number(document.body.dataset.crop);
    let [across, down] = [width * image.width, height * image.height];
    const [x, y] = [left * image.width + across / 2, top * image.height + down / 2];
    if (crop) across = down = Math.min(across, down) * crop;
    const canvas = make("canvas", { width: 224, height: 224 });
    canvas.getContext("2d").drawImage(image, x - across / 2, y - down / 2, across, down, 0, 0, 224, 224);
    return canvas.toDataURL();
  }
  async function explain(one, why) {
    const { query: weights, shape } = answer.explanation;
    const source = query.box ? await cropped(query.source, query.box) : query.source;
    const pictures = [[source, `query: ${query.words}`], [`image/${one.position}`, `neighbor: ${one.label}`]];
    const whole = [weights, why.weights];
    const pair = make("div", { class: "pair" });
    const show = (maps) => pair.replaceChildren(...pictures.map(([source, caption], i) =>
      make("figure", {},
        make("span", { class: "frame" }, make("img", { src: source, alt: caption }),
          maps ? overlay(maps[i], shape) : null),
        make("figcaption", { class: "under" }, caption))));
    const choice = (caption, maps, checked = false) => make("label", { class: "check" },
      make("input", { type: "radio", name: "part", checked, onchange: () => show(maps) }), ...[caption].flat());
    const patches = (part) => [part.query, part.neighbor].map((map, i) =>
      patch(pictures[i][0], map, shape, `prototype ${part.prototype}, its position in the ${i ? "neighbor" : "query"}`));
    const largest = Math.max(Math.abs(why.similarity), ...why.prototypes.map((part) => Math.abs(part.share)), 1e-9);
    const row = (label, share) => make("tr", {}, make("td", {}, label),
      make("td", { class: "n" }, share === null ? "" : share.toFixed(3)),
      make("td", {}, share === null ? "" : make("span", {
        class: share < 0 ? "share negative" : "share", style: `width:${100 * Math.abs(share) / largest}%`,
      })));
    const rest = why.similarity - why.prototypes.reduce((sum, part) => sum + part.share, 0);
    show(whole);
    find("why-body").replaceChildren(
      make("p", {}, `Inner product ${why.similarity.toFixed(3)}, distance ${one.distance.toFixed(3)}.`),
      make("div", { class: "why-grid" },
        make("div", {}, pair),
        make("table", { class: "shares" },
          make("caption", { class: "hidden" }, "What each prototype adds to the similarity"),
          make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "pooled here"),
            make("th", { scope: "col", class: "n" }, "adds"),
            make("th", { scope: "col" }, make("span", { class: "hidden" }, "as a bar")))),
          make("tbody", {},
            row(choice("nothing", null), null), row(choice("everything", whole, true), why.similarity),
            ...why.prototypes.map((part) => row(choice(patches(part), [part.query, part.neighbor]), part.share)),
            row("other prototypes", rest)))));
    find("why").showModal();
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
  find("k").addEventListener("change", search);
  if (find("items")) find("items").addEventListener("change", search);
  find("threshold").addEventListener("input", draw);
  if (find("overlay")) find("overlay").addEventListener("change", draw);
})();
