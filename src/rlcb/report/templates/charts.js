/* Interactive curves in place of the still pictures: values under the pointer, zoom, curves on and off, axis switch.
   Each figure holds its data as JSON; a figure that cannot be drawn keeps its picture. Text is only ever set as
   textContent, because the names in it come from runs. */
"use strict";
const charts = (() => {
  const PALETTE = JSON.parse(document.getElementById("palette").textContent);
  const DASHES = [[], [7, 4], [2, 3], [8, 3, 2, 3]];
  const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const MOST_READ = 12; // values shown under the pointer
  const drawn = new Map(); // the charts on the page by their names

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // A variable is light-dark(…); as the colour of an element it is one of the two.
  const probe = document.body.appendChild(element("span", { hidden: "" }));
  const variable = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const colourOf = (number) => {
    const colour = PALETTE[number % PALETTE.length];
    return number < 0 ? variable("--soft") : colour === "#000000" ? variable("--ink") : colour;
  };
  const dashOf = (number) => (number < 0 ? DASHES[1] : DASHES[Math.floor(number / PALETTE.length) % DASHES.length]);

  function shortNumber(value) {
    const size = Math.abs(value);
    for (const [unit, name] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
      if (size >= unit) return `${+(value / unit).toPrecision(4)}${name}`.replace("-", "−");
    }
    return `${+value.toPrecision(4)}`.replace("-", "−");
  }

  function clock(seconds) {
    const whole = Math.round(seconds), two = (number) => String(number).padStart(2, "0");
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)} h` : `${minutes}:${two(whole % 60)} min`;
  }

  const formatX = (view, value) => (view.kind === "time" ? clock(value) : shortNumber(value));

  /* The values of a curve at all points of the chart, null before its first and after its last one. */
  function resampled(points, x, y) {
    let next = 0;
    return points.map((at) => {
      while (next < x.length && x[next] < at) next += 1;
      if (next === x.length || (next === 0 && x[0] > at)) return null;
      if (x[next] === at || y[next] === null || y[next - 1] === null) return y[next];
      const share = (at - x[next - 1]) / (x[next] - x[next - 1]);
      return y[next - 1] + share * (y[next] - y[next - 1]);
    });
  }

  /* A view as columns: the points, then mean, upper and lower bound of each curve. */
  function columnsOf(view) {
    const points = [...new Set(view.curves.flatMap((curve) => curve.x))].sort((one, other) => one - other);
    return [points, ...view.curves.flatMap((curve) => [curve.mean, curve.high || curve.mean, curve.low || curve.mean]
      .map((values) => resampled(points, curve.x, values)))];
  }

  class Chart {
    constructor(figure, state, changed) {
      this.name = figure.dataset.chart;
      this.figure = figure;
      this.views = JSON.parse(figure.querySelector("script").textContent).views;
      this.state = { view: 0, hidden: [], range: null, ...state };
      if (!this.views[this.state.view]) this.state.view = 0;
      this.changed = changed;
      this.build();
    }

    get view() { return this.views[this.state.view]; }

    build() {
      const button = (text, label, action) => {
        const made = element("button", { type: "button", title: label, ...(text.length > 1 ? {} : { "aria-label": label }) }, text);
        made.addEventListener("click", action);
        return made;
      };
      this.switches = this.views.map((view, number) => button(view.name, `Show: ${view.name}`, () => this.show(number)));
      this.resetButton = button("Reset zoom", "Show the full range", () => this.reset());
      const zoom = element("div", { class: "buttons", role: "group", "aria-label": "Zoom" },
        button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)), this.resetButton);
      const views = element("div", { class: "buttons", role: "group", "aria-label": "View" }, ...this.switches);
      this.title = element("p", { class: "axis-title" });
      this.plot = element("div", {
        class: "plot", tabindex: "0", role: "application", "aria-roledescription": "chart",
        "aria-label": `${this.figure.dataset.alt} Arrow keys read values, plus and minus zoom, 0 resets.`,
      });
      this.plot.addEventListener("keydown", (event) => this.pressed(event));
      this.plot.addEventListener("blur", () => this.leave());
      this.tip = element("div", { class: "tip", "aria-hidden": "true" });
      this.tip.hidden = true;
      this.reading = element("p", { class: "unseen", "aria-live": "polite" });
      this.legend = element("div", { class: "legend", role: "group", "aria-label": "Curves" });
      this.area = element("div", { class: "interactive" },
        element("div", { class: "bar" }, ...(this.views.length > 1 ? [views] : []), zoom),
        this.title, this.plot, this.tip, this.reading, this.legend);
      this.figure.prepend(this.area);
      this.figure.classList.add("drawn");
      this.fillLegend();
      this.mark();
      // Drawn when it comes near the screen: a page may have dozens of charts.
      this.seen = new IntersectionObserver((found) => {
        if (found.some((entry) => entry.isIntersecting)) { this.seen.disconnect(); this.draw(); }
      }, { rootMargin: "400px" });
      this.seen.observe(this.plot);
      this.sized = new ResizeObserver(() => this.resize());
      this.sized.observe(this.plot);
    }

    fillLegend() {
      this.legend.replaceChildren(...this.view.curves.map((curve) => {
        const mark = element("i", { class: curve.colour < 0 ? "published" : `k${curve.colour % PALETTE.length} l${Math.floor(curve.colour / PALETTE.length)}` });
        const made = element("button", { type: "button", title: "Show or hide; Shift-click: show only this curve" }, mark, curve.label);
        made.addEventListener("click", (event) => this.toggle(curve.label, event.shiftKey));
        return made;
      }));
    }

    mark() {
      this.title.textContent = this.view.y;
      this.switches.forEach((made, number) => made.setAttribute("aria-pressed", String(number === this.state.view)));
      [...this.legend.children].forEach((made, number) => {
        made.setAttribute("aria-pressed", String(!this.isHidden(this.view.curves[number])));
      });
      this.resetButton.disabled = this.state.range === null;
    }

    isHidden(curve) { return this.state.hidden.includes(curve.label); }

    toggle(label, alone) {
      const others = this.view.curves.map((curve) => curve.label).filter((other) => other !== label);
      const hidden = this.state.hidden;
      if (alone) this.state.hidden = others.every((other) => hidden.includes(other)) && !hidden.includes(label) ? [] : others;
      else this.state.hidden = hidden.includes(label) ? hidden.filter((other) => other !== label) : [...hidden, label];
      this.update();
    }

    update() {
      if (this.uplot) {
        this.uplot.batch(() => this.view.curves.forEach((curve, number) => {
          for (const part of [1, 2, 3]) this.uplot.setSeries(3 * number + part, { show: !this.isHidden(curve) }, false);
        }));
      }
      this.mark();
      this.changed();
    }

    show(number) {
      this.state.view = number;
      this.state.range = null;
      this.fillLegend();
      if (this.uplot) this.draw();
      this.mark();
      this.changed();
    }

    extent() {
      const points = this.uplot.data[0];
      return [points[0], points[points.length - 1]];
    }

    zoom(factor) {
      if (!this.uplot) return;
      const { min, max } = this.uplot.scales.x, [first, last] = this.extent();
      const at = this.uplot.cursor.idx == null ? (min + max) / 2 : this.uplot.data[0][this.uplot.cursor.idx];
      const low = Math.max(first, at - (at - min) * factor), high = Math.min(last, at + (max - at) * factor);
      if (high - low > (last - first) / 1e4) this.uplot.setScale("x", { min: low, max: high });
    }

    reset() {
      const [first, last] = this.extent();
      this.uplot.setScale("x", { min: first, max: last });
      if (document.activeElement === document.body) this.plot.focus();
    }

    scaled() {
      const { min, max } = this.uplot.scales.x, [first, last] = this.extent();
      const hair = (last - first) / 1e6;
      const whole = min <= first + hair && max >= last - hair;
      this.state.range = whole ? null : [min, max];
      if (whole && document.activeElement === this.resetButton) this.plot.focus(); // it is about to be disabled
      this.mark();
      this.changed();
    }

    draw() {
      this.uplot?.destroy();
      const view = this.view, ink = () => variable("--ink");
      const axis = {
        stroke: ink, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
        grid: { stroke: () => variable("--grid"), width: 1 }, ticks: { stroke: () => variable("--grid"), width: 1 },
      };
      const along = { ...axis, label: view.x, size: 30, labelSize: 24, space: 70, values: (_, ticks) => ticks.map((tick) => formatX(view, tick)) };
      if (view.kind === "time") along.incrs = TIME_STEPS;
      const up = { ...axis, size: 58, values: (_, ticks) => ticks.map(shortNumber) };
      const series = view.curves.flatMap((curve) => {
        const show = !this.isHidden(curve);
        const bound = { show, stroke: "transparent", width: 0, points: { show: false } };
        const line = { label: curve.label, show, stroke: () => colourOf(curve.colour), width: 1.8, dash: dashOf(curve.colour) };
        return [{ ...line, points: { show: curve.x.length === 1, size: 7 } }, bound, bound];
      });
      const bands = view.curves.flatMap((curve, number) => (curve.low
        ? [{ series: [3 * number + 2, 3 * number + 3], fill: () => `color-mix(in srgb, ${colourOf(curve.colour)} 18%, transparent)` }]
        : []));
      this.uplot = new uPlot({
        ...this.size(), series: [{}, ...series], bands, axes: [along, up],
        legend: { show: false }, scales: { x: { time: false } },
        cursor: { y: false, drag: { x: true, y: false } },
        hooks: { setCursor: [() => this.read()], setScale: [(plot, key) => { if (key === "x" && this.uplot) this.scaled(); }] },
      }, columnsOf(view), this.plot);
      const range = this.state.range, [first, last] = this.extent();
      if (range && range[0] < last && range[1] > first) this.uplot.setScale("x", { min: Math.max(range[0], first), max: Math.min(range[1], last) });
    }

    size() { return { width: Math.max(this.plot.clientWidth, 200), height: this.plot.clientHeight }; }

    resize() {
      if (this.uplot && this.uplot.width !== this.size().width) this.uplot.setSize(this.size());
    }

    /* The visible curves' values at a point, the highest first. */
    valuesAt(place) {
      const found = this.view.curves.flatMap((curve, number) => {
        const [mean, high, low] = [1, 2, 3].map((part) => this.uplot.data[3 * number + part][place]);
        if (mean == null || this.isHidden(curve)) return [];
        const text = curve.low ? `${shortNumber(mean)} [${shortNumber(low)}, ${shortNumber(high)}]` : shortNumber(mean);
        return [{ curve, mean, text }];
      });
      return found.sort((one, other) => other.mean - one.mean);
    }

    read() {
      const place = this.uplot?.cursor.idx, left = this.uplot?.cursor.left;
      const found = place == null || !(left >= 0) ? [] : this.valuesAt(place);
      this.tip.hidden = !found.length;
      if (!found.length) return;
      const rows = found.slice(0, MOST_READ).map(({ curve, text }) => {
        const mark = element("i", {});
        mark.style.borderTopColor = colourOf(curve.colour);
        return element("div", {}, mark, `${curve.label}: ${text}`);
      });
      if (found.length > rows.length) rows.push(element("div", {}, `and ${found.length - rows.length} more`));
      this.tip.replaceChildren(element("strong", {}, `${this.view.x}: ${formatX(this.view, this.uplot.data[0][place])}`), ...rows);
      // On the side of the pointer that has more room; on a narrow screen the style sheet puts it below the plot.
      const wide = this.area.clientWidth, over = this.uplot.over.getBoundingClientRect();
      const at = over.left - this.area.getBoundingClientRect().left + left, onLeft = at > wide / 2;
      this.tip.style.maxWidth = `${(onLeft ? at : wide - at) - 24}px`;
      this.tip.style.left = onLeft ? "auto" : `${at + 12}px`;
      this.tip.style.right = onLeft ? `${wide - at + 12}px` : "auto";
      this.tip.style.top = `${this.plot.offsetTop + 4}px`;
    }

    leave() {
      if (this.uplot) this.uplot.setCursor({ left: -10, top: -10 });
    }

    pressed(event) {
      if (!this.uplot || event.ctrlKey || event.metaKey || event.altKey) return;
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10 };
      if (event.key in steps) this.step(steps[event.key]);
      else if (event.key === "Home") this.step(-Infinity);
      else if (event.key === "End") this.step(Infinity);
      else if (event.key === "+" || event.key === "=") this.zoom(0.5);
      else if (event.key === "-") this.zoom(2);
      else if (event.key === "0" || event.key === "Escape") this.reset();
      else return;
      event.preventDefault();
    }

    /* Move the reading position by a fiftieth of what is visible, and say what is there. */
    step(count) {
      const plot = this.uplot, { min, max } = plot.scales.x, [first, last] = this.extent(), points = plot.data[0];
      const now = plot.cursor.idx == null ? min : points[plot.cursor.idx];
      const wanted = plot.cursor.idx == null && count === 1 ? min : now + count * (max - min) / 50;
      const target = Math.min(Math.max(wanted, first), last);
      let place = plot.valToIdx(target);
      if (place === plot.cursor.idx && Math.abs(count) === 1) place = Math.min(Math.max(place + count, 0), points.length - 1);
      const at = points[place];
      if (at < min || at > max) {
        const shift = at < min ? at - min : at - max;
        plot.setScale("x", { min: min + shift, max: max + shift });
      }
      plot.setCursor({ left: plot.valToPos(at, "x"), top: 10 });
      const said = this.valuesAt(place).slice(0, MOST_READ).map(({ curve, text }) => `${curve.label} ${text}`);
      this.reading.textContent = `${formatX(this.view, at)}: ${said.join("; ") || "no values"}`;
    }

    recolour() { if (this.uplot) this.uplot.redraw(false); }
  }

  function start(states, changed) {
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      try {
        const chart = new Chart(figure, states[figure.dataset.chart], changed);
        drawn.set(chart.name, chart);
      } catch (error) {
        figure.querySelector(".interactive")?.remove();
        figure.classList.remove("drawn");
        console.error(error);
      }
    }
  }

  return {
    start,
    recolour: () => drawn.forEach((chart) => chart.recolour()),
    states: () => Object.fromEntries([...drawn].map(([name, chart]) => [name, chart.state])),
    chart: (name) => drawn.get(name),
  };
})();
