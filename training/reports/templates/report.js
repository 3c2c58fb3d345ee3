"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { make, find, color, isDark, overlay, redraws, breakable } = page;

  const className = (image) => data.classes[data.images[image][0]];

  // The golden angle keeps the hues of neighboring methods and classes apart.
  const seriesColor = (number) => (data.methods.length <= 6 ? color(`--s${number}`)
    : `hsl(${(number * 137.508) % 360} 65% ${isDark() ? 65 : 38}%)`);
  redraws.push(() => document.querySelectorAll("[data-key]").forEach((one) => {
    one.style.background = seriesColor(Number(one.dataset.key));
  }));
  const classColor = (label) =>
    `hsl(${(label * 137.508) % 360} ${55 + (label % 3) * 15}% ${isDark() ? 55 + (label % 4) * 7 : 34 + (label % 4) * 7}%)`;

  function draw(chart, traces, layout) {
    const axis = {
      gridcolor: color("--line"), linecolor: color("--line"),
      zerolinecolor: color("--line"), automargin: true,
    };
    const whole = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: color("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 50, r: 15, t: 15, b: 45 }, hovermode: "closest", showlegend: false,
      ...layout,
    };
    for (const name of ["xaxis", "yaxis"]) whole[name] = { ...axis, ...whole[name] };
    return Plotly.react(chart, traces, whole, {
      responsive: true, displaylogo: false, displayModeBar: false,
    });
  }

  /* ---- curves ---- */
  const measures = [...new Set(data.curves.flatMap((one) => Object.keys(one.values)))];
  const curveWords = (name) => ({
    val_map_at_r: "MAP@R, validation", val_precision_at_1: "P@1, validation",
    val_precision_at_r: "P@R, validation", loss: "loss", seconds: "seconds of training",
  }[name] || name.replaceAll("_", " "));
  function drawCurves() {
    const measure = find("curve-measure").value;
    draw("c-curves", data.curves.filter((one) => one.values[measure]).map((one) => ({
      x: one.steps, y: one.values[measure], name: one.run, type: "scatter",
      mode: one.steps.length > 60 ? "lines" : "lines+markers",
      line: { color: seriesColor(one.method), width: 2, dash: ["solid", "dash", "dot"][Math.floor(one.method / 6) % 3] },
      hovertemplate: `${one.run.replaceAll("<", "&lt;")}<br>step %{x}: %{y:.4f}<extra></extra>`,
    })), {
      xaxis: { title: { text: "training step" } },
      // No room below 0 around scores that are all equal.
      yaxis: { title: { text: curveWords(measure) }, rangemode: measure.startsWith("val_") ? "nonnegative" : "normal" },
    });
  }
  if (measures.length) {
    const first = ["val_map_at_r", "loss"].find((name) => measures.includes(name)) || measures[0];
    find("curve-measure").append(...measures.map((name) =>
      make("option", { value: name, selected: name === first }, curveWords(name))));
    find("curve-measure").addEventListener("change", drawCurves);
    redraws.push(drawCurves);
  } else {
    find("curves").querySelectorAll(".tools, .chart, .keys").forEach((one) => one.remove());
    find("curves").append(make("p", {}, "There is no history yet."));
  }

  /* ---- queries ---- */
  // An image, and below it the same under its pooling weights.
  function pictured(search, image, words, badge = null, own = false) {
    const picture = (extra) => make("span", { class: own ? "frame own" : "frame" },
      make("img", { src: data.pictures[image], alt: words }), extra);
    const text = search.shape && search.weights[image];
    return [picture(badge), text && find("overlay").checked ? picture(overlay(text, search.shape)) : null];
  }
  function neighbor(search, answer, rank) {
    const image = answer.neighbors[rank];
    const right = answer.right[rank];
    const distance = answer.distances[rank].toFixed(3);
    const words = `neighbor ${rank + 1}: ${className(image)}, ${right ? "right" : "another class"}, distance ${distance}`;
    const badge = make("span", { class: "badge", "aria-hidden": "true" }, right ? "✓" : "✗");
    return make("div", {
      class: right ? "neighbor" : "neighbor wrong", title: `${className(image)}, ${data.images[image][1]}`,
    }, ...pictured(search, image, words, badge),
    make("span", { class: "under" }, ...breakable(className(image))),
    make("span", { class: "under quiet" }, distance));
  }
  function queryBlock(query) {
    const answers = data.runs.map((name, run) => {
      const search = data.searches[run];
      const answer = search.queries[query];
      const score = answer.score === null ? "no positive" : `MAP@R ${(100 * answer.score).toFixed(1)} %`;
      return make("div", {},
        make("div", { class: "of" }, ...breakable(data.runs.length > 1 ? `${name}: ${score}` : score)),
        make("div", { class: "strip" }, ...answer.neighbors.map((_, rank) => neighbor(search, answer, rank))));
    });
    return make("article", { class: "query" },
      make("div", { class: "asked" },
        make("div", {}, ...pictured(data.searches.at(-1), query, `query: ${className(query)}`, null, true)),
        make("h3", {}, ...breakable(`Query: ${className(query)}`))),
      make("div", { class: "answers" }, ...answers));
  }
  function drawQueries() {
    find("query-rows").replaceChildren(...Object.entries(data.lists).flatMap(([title, queries]) => [
      make("h3", {}, title), ...queries.map(queryBlock),
    ]));
  }

  /* ---- map ---- */
  function showTip(image, event) {
    const tip = find("tooltip");
    tip.replaceChildren(make("img", { class: "tile", width: 112, height: 112, src: data.thumbnails[image], alt: "" }),
      make("div", {}, make("strong", {}, className(image))),
      make("div", { class: "quiet" }, data.images[image][1]));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 16, innerWidth - width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 4))}px`;
  }
  function drawMaps(charts, labels) {
    const chosen = find("map-class").value;
    const isChosen = (label) => chosen !== "" && String(label) === chosen;
    // Those of the chosen class are drawn last, above the others.
    const order = labels.map((_, i) => i).sort((a, b) => isChosen(labels[a]) - isChosen(labels[b]));
    const pick = (values) => order.map((i) => values[i]);
    charts.forEach((chart, run) => {
      const { x, y } = data.maps[run];
      draw(chart, [{
        x: pick(x), y: pick(y), customdata: pick(data.points), type: "scatter", mode: "markers", hoverinfo: "none",
        marker: {
          color: pick(labels.map((label) => (chosen === "" || isChosen(label) ? classColor(label) : color("--line")))),
          size: pick(labels.map((label) => (isChosen(label) ? 11 : 6))), opacity: .85, line: { width: 0 },
        },
      }], {
        margin: { l: 8, r: 8, t: 8, b: 8 }, dragmode: "zoom",
        xaxis: { visible: false, range: [-1.08, 1.08] },
        yaxis: { visible: false, range: [-1.08, 1.08], scaleanchor: "x" },
      });
      if (chart.dataset.listens) return;
      chart.dataset.listens = "yes";
      chart.on("plotly_hover", (event) => showTip(event.points[0].customdata, event.event));
      chart.on("plotly_unhover", () => { find("tooltip").hidden = true; });
    });
  }

  if (data.points) {
    find("overlay-label").hidden = !data.searches.some((search) => search.shape);
    find("overlay").addEventListener("change", drawQueries);
    drawQueries();
    const labels = data.points.map((image) => data.images[image][0]);
    const present = [...new Set(labels)].sort((a, b) => data.classes[a].localeCompare(data.classes[b]));
    find("map-class").append(...present.map((label) => make("option", { value: label }, data.classes[label])));
    const charts = data.runs.map((name, run) => {
      const chart = make("div", { class: "chart", role: "img", "aria-label": `Map of the embeddings of ${name}` });
      find("map-charts").append(make("div", {}, make("h3", {}, `${name}: ${data.maps[run].words}`), chart));
      return chart;
    });
    find("map-class").addEventListener("change", () => drawMaps(charts, labels));
    redraws.push(() => drawMaps(charts, labels));
  }
  redraws.forEach((redraw) => redraw());
})();
