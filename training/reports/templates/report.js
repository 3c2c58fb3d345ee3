"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { make, find, say, color, isDark, overlay, redraws, applyTheme, breakable } = page;

  const className = (image) => data.classes[data.images[image][0]];
  const percent = (value) => (100 * value).toFixed(1);

  // The golden angle keeps the hues of neighboring methods and classes apart.
  const seriesColor = (number) => (data.methods.length <= 6 ? color(`--s${number}`)
    : `hsl(${(number * 137.508) % 360} 65% ${isDark() ? 65 : 38}%)`);
  redraws.push(() => document.querySelectorAll("[data-key]").forEach((one) => {
    one.style.background = seriesColor(Number(one.dataset.key));
  }));
  const classColor = (label) =>
    `hsl(${(label * 137.508) % 360} ${55 + (label % 3) * 15}% ${isDark() ? 55 + (label % 4) * 7 : 34 + (label % 4) * 7}%)`;

  function draw(place, traces, layout) {
    const axis = {
      gridcolor: color("--line"), linecolor: color("--line"),
      zerolinecolor: color("--line"), automargin: true,
    };
    const whole = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: color("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 50, r: 15, t: 15, b: 45 },
      hoverlabel: { bgcolor: color("--card"), bordercolor: color("--line"), font: { color: color("--ink") } },
      ...layout,
    };
    for (const name of ["xaxis", "yaxis"]) whole[name] = { ...axis, ...whole[name] };
    return Plotly.react(place, traces, whole, {
      responsive: true, displaylogo: false, displayModeBar: false,
    });
  }

  /* ---- tables ---- */
  const numberOf = (text) => {
    const value = parseFloat(text.replace("−", "-"));
    return Number.isNaN(value) ? -Infinity : value;
  };
  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => {
        const isText = head.dataset.kind === "text";
        const before = head.getAttribute("aria-sort");
        const up = before ? before === "descending" : true;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const keyed = [...table.tBodies[0].rows].map((row) => {
          const text = row.cells[place].textContent.trim();
          return [isText ? text : numberOf(text), row];
        });
        keyed.sort(([a], [b]) => (isText ? a.localeCompare(b) : a - b) * (up ? 1 : -1));
        table.tBodies[0].append(...keyed.map(([, row]) => row));
        say(`Sorted by ${head.textContent.trim()}, ${up ? "ascending" : "descending"}`);
      });
    });
  });
  document.querySelectorAll("[data-filter]").forEach((input) => {
    const rows = [...find(input.dataset.filter).tBodies[0].rows];
    input.addEventListener("input", () => {
      const words = input.value.trim().toLowerCase();
      let count = 0;
      for (const row of rows) {
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(words);
        count += !row.hidden;
      }
      say(`${count} rows`);
    });
  });

  /* ---- sections in view ---- */
  const links = [...document.querySelectorAll("nav a")];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links) {
        if (link.hash === `#${entry.target.id}`) {
          link.setAttribute("aria-current", "true");
          link.closest("nav").scrollLeft = link.offsetLeft - 40;
        } else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main > section").forEach((one) => watcher.observe(one));

  /* ---- curves ---- */
  const measures = [...new Set(data.curves.flatMap((one) => Object.keys(one.values)))];
  const curveWords = (name) => ({
    val_map_at_r: "MAP@R, validation", val_precision_at_1: "P@1, validation",
    val_precision_at_r: "P@R, validation", loss: "loss", seconds: "seconds of training",
  }[name] || name.replaceAll("_", " "));
  function drawCurves() {
    const select = find("curve-measure");
    const measure = select.value;
    draw("c-curves", data.curves.filter((one) => one.values[measure]).map((one) => ({
      x: one.steps, y: one.values[measure], name: one.run, type: "scatter",
      mode: one.steps.length > 60 ? "lines" : "lines+markers",
      line: { color: seriesColor(one.method), width: 2, dash: ["solid", "dash", "dot"][Math.floor(one.method / 6) % 3] },
      hovertemplate: `${one.run.replaceAll("<", "&lt;")}<br>step %{x}: %{y:.4f}<extra></extra>`,
    })), {
      showlegend: false, hovermode: "closest",
      xaxis: { title: { text: "training step" } },
      yaxis: { title: { text: curveWords(measure) } },
    });
  }
  function curveTable() {
    const measure = find("curve-measure").value;
    const steps = [...new Set(data.curves.flatMap((one) => one.steps))].sort((a, b) => a - b);
    const table = make("table", { id: "t-curves" },
      make("caption", { class: "hidden" }, curveWords(measure)),
      make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "n" }, "step"),
        ...data.curves.map((one) => make("th", { scope: "col", class: "n" }, one.run)))),
      make("tbody", {}, ...steps.map((step) => make("tr", {},
        make("th", { scope: "row", class: "n" }, String(step)),
        ...data.curves.map((one) => {
          const value = (one.values[measure] || [])[one.steps.indexOf(step)];
          return make("td", { class: "n" }, typeof value === "number" ? value.toFixed(4) : "–");
        })))));
    find("curve-table").replaceChildren(
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Learning curves" }, table),
      make("div", { class: "tools" }, make("button", { type: "button", "data-copy": "t-curves" }, "Copy as Markdown")));
  }
  if (measures.length) {
    const first = ["val_map_at_r", "loss"].find((name) => measures.includes(name)) || measures[0];
    find("curve-measure").append(...measures.map((name) =>
      make("option", { value: name, selected: name === first }, curveWords(name))));
    find("curve-measure").addEventListener("change", () => { drawCurves(); curveTable(); });
    redraws.push(drawCurves);
    curveTable();
  } else {
    find("curves").querySelectorAll(".tools, .chart, .keys, details").forEach((one) => one.remove());
    find("curves").append(make("p", {}, "There is no history yet."));
  }

  if (!data.points) { applyTheme(); return; }

  /* ---- queries ---- */
  const showsWeights = () => find("overlay").checked;
  // An image, and below it the same under its pooling weights.
  function pictured(search, image, words, badge = null, own = false) {
    const kind = own ? "frame own" : "frame";
    const picture = (extra) => make("span", { class: kind },
      make("img", { src: data.pictures[image], alt: words }), extra);
    const text = search.shape && search.weights[image];
    return [picture(badge), text && showsWeights() ? picture(overlay(text, search.shape)) : null];
  }
  function neighborButton(run, query, rank) {
    const search = data.searches[run];
    const answer = search.queries[query];
    const image = answer.neighbors[rank];
    const right = answer.right[rank];
    const words = `neighbor ${rank + 1}: ${className(image)}, ${right ? "right" : "another class"}, distance ${answer.distances[rank].toFixed(3)}`;
    const badge = make("span", { class: "badge", "aria-hidden": "true" }, right ? "✓" : "✗");
    const explained = answer.why && rank < answer.why.length;
    return make("button", {
      type: "button", class: right ? "neighbor" : "neighbor wrong", title: `${className(image)}, ${data.images[image][1]}`,
      disabled: !explained, onclick: () => explain(run, query, rank),
    }, ...pictured(search, image, words, badge),
    make("span", { class: "under" }, ...breakable(className(image))),
    make("span", { class: "under quiet" }, answer.distances[rank].toFixed(3)));
  }
  function queryBlock(query) {
    const answers = data.runs.map((name, run) => {
      const search = data.searches[run];
      const answer = search.queries[query];
      const score = answer.score === null ? "no positive" : `MAP@R ${percent(answer.score)} %`;
      return make("div", {},
        make("div", { class: "of" }, ...breakable(data.runs.length > 1 ? `${name}: ${score}` : score)),
        make("div", { class: "strip" }, ...answer.neighbors.map((_, rank) => neighborButton(run, query, rank))));
    });
    const last = data.searches[data.searches.length - 1];
    return make("article", { class: "query" },
      make("div", { class: "asked" },
        make("div", {}, ...pictured(last, query, `query: ${className(query)}`, null, true)),
        make("h3", {}, ...breakable(`Query: ${className(query)}`))),
      make("div", { class: "answers" }, ...answers));
  }
  function drawQueries() {
    const list = data.lists[Number(find("query-list").value)];
    find("query-rows").replaceChildren(...list.parts.flatMap(([title, queries]) => [
      title ? make("h3", {}, title) : "", ...queries.map(queryBlock),
    ]));
  }
  const explainable = data.searches.some((search) => search.shape);
  find("overlay-label").hidden = !explainable;
  find("how-to-explain").hidden = !explainable;
  find("overlay").addEventListener("change", drawQueries);
  find("query-list").addEventListener("change", drawQueries);
  drawQueries();

  function explain(run, query, rank) {
    const search = data.searches[run];
    const answer = search.queries[query];
    const neighbor = answer.neighbors[rank];
    const why = answer.why[rank];
    const images = [query, neighbor];
    page.showWhy({
      words: `${data.runs[run]}: inner product ${why.similarity.toFixed(3)}, distance ${answer.distances[rank].toFixed(3)}, ${answer.right[rank] ? "of the query's class" : "of another class"}.`,
      pictures: images.map((image, i) => [data.pictures[image], `${["query", "neighbor"][i]}: ${className(image)}`]),
      shape: search.shape,
      similarity: why.similarity,
      weights: images.map((image) => search.weights[image]),
      parts: why.prototypes.map((prototype, i) => ({
        prototype, share: why.shares[i],
        maps: images.map((image) => search.parts[`${image}:${prototype}`]),
      })),
    });
  }

  /* ---- map ---- */
  const thumbnail = (image, side) => make("img", {
    class: "tile", width: side, height: side, loading: "lazy",
    src: data.thumbnails[image], alt: `${className(image)}, ${data.images[image][1]}`,
  });
  const names = { pca: "PCA", tsne: "t-SNE" };
  find("map-method").append(...data.maps.map((one, place) =>
    make("option", { value: place }, names[one.method])));
  const labels = data.points.map((image) => data.images[image][0]);
  const present = [...new Set(labels)].sort((a, b) => data.classes[a].localeCompare(data.classes[b]));
  find("map-class").append(...present.map((label) =>
    make("option", { value: label }, data.classes[label])));
  const charts = data.runs.map((name) => {
    const chart = make("div", { class: "chart", role: "img", "aria-label": `Map of the embeddings of ${name}; choose a class to list its images` });
    const words = make("h3", {});
    find("map-charts").append(make("div", {}, words, chart));
    return { name, chart, words, listens: false };
  });
  function drawMap() {
    const map = data.maps[Number(find("map-method").value)];
    const chosen = find("map-class").value;
    const colors = labels.map((label) =>
      chosen === "" || String(label) === chosen ? classColor(label) : color("--line"));
    const sizes = labels.map((label) => (chosen !== "" && String(label) === chosen ? 11 : 6));
    charts.forEach((one, run) => {
      const layout = map.layouts[run];
      one.words.textContent = `${one.name}: ${layout.words}`;
      const order = labels.map((_, i) => i).sort((a, b) => sizes[a] - sizes[b]);
      const pick = (values) => order.map((i) => values[i]);
      draw(one.chart, [{
        x: pick(layout.x), y: pick(layout.y), customdata: pick(data.points),
        type: "scatter", mode: "markers", hoverinfo: "none",
        marker: { color: pick(colors), size: pick(sizes), opacity: .85, line: { width: 0 } },
      }], {
        margin: { l: 8, r: 8, t: 8, b: 8 }, dragmode: "zoom", hovermode: "closest",
        xaxis: { visible: false, range: [-1.08, 1.08] },
        yaxis: { visible: false, range: [-1.08, 1.08], scaleanchor: "x" },
      });
      if (one.listens) return;
      one.listens = true;
      one.chart.on("plotly_hover", (event) => showTip(event.points[0].customdata, event.event));
      one.chart.on("plotly_unhover", () => { find("tooltip").hidden = true; });
      one.chart.on("plotly_click", (event) => {
        const label = String(data.images[event.points[0].customdata][0]);
        find("map-class").value = find("map-class").value === label ? "" : label;
        drawMap();
      });
    });
    const members = data.points.filter((_, i) => String(labels[i]) === chosen);
    find("map-members").replaceChildren(...(members.length ? [
      make("h3", {}, `${data.classes[chosen]}: ${members.length} images`),
      make("div", { class: "members" }, ...members.map((image) => thumbnail(image, 56))),
    ] : []));
  }
  function showTip(image, event) {
    const tip = find("tooltip");
    tip.replaceChildren(thumbnail(image, 112), make("div", {}, make("strong", {}, className(image))),
      make("div", { class: "quiet" }, data.images[image][1]));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 16, innerWidth - width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 4))}px`;
  }
  find("map-method").addEventListener("change", drawMap);
  find("map-class").addEventListener("change", drawMap);
  redraws.push(drawMap);

  applyTheme();
})();
