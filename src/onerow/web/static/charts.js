// Charts of the overview, drawn by uPlot from the numbers in data-chart; colours come from the style sheet.
"use strict";
(() => {
  const drawn = new Map();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e3 ? `${+(value / 1e3).toFixed(1)}k` : `${+value.toFixed(1)}`;
  const millis = (value) => value == null ? "–" : value < 1000 ? `${Math.round(value)} ms` : value < 60000 ? `${+(value / 1000).toFixed(1)} s` : value < 3600000 ? `${+(value / 60000).toFixed(1)} m` : `${+(value / 3600000).toFixed(1)} h`;

  // The phase of each bar, as far as there is room for it.
  function named(labels, width) {
    const most = Math.max(3, Math.floor((width - 60) / labels.length / 6.5));
    return labels.map((each) => each.slice(each.indexOf(".") + 1)).map((each) => each.length > most ? `${each.slice(0, most - 1)}…` : each);
  }

  function axes(unit, labels, width) {
    const common = { stroke: colour("--ink-3"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const values = unit === "ms" ? (_, ticks) => ticks.map((each) => millis(each)) : (_, ticks) => ticks.map(short);
    const names = labels && named(labels, width);
    const time = labels ? { space: 10, incrs: [1], values: (_, ticks) => ticks.map((each) => names[each] || "") }
      : { values: (_, ticks) => ticks.map((each) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(each * 1000)) };
    return [{ ...common, space: 60, ...time, grid: { show: false }, size: 30 }, { ...common, values, size: 52, space: 34 }];
  }

  function options(data, width) {
    const bars = data.kind !== "lines";
    const stacked = [];
    if (bars) {
      let below = data.series[0][2].map(() => 0);
      for (const [, , values] of data.series) {
        below = values.map((value, number) => (value || 0) + below[number]);
        stacked.push(below);
      }
    }
    const order = data.series.map((_, number) => number);
    if (bars) order.reverse(); // the tallest bar is drawn first, the others over it
    const series = order.map((number) => {
      const [label, name] = data.series[number];
      const line = colour(`--${name}-fill`);
      const value = (_, shown, seriesIndex, at) => at == null ? "–" : data.unit === "ms" ? millis(data.series[number][2][at]) : short(data.series[number][2][at] || 0);
      return bars ? { label, stroke: line, fill: line, width: 0, value, points: { show: false }, paths: uPlot.paths.bars({ size: [0.82, 46], gap: 1 }) }
        : { label, stroke: line, width: 2, value, spanGaps: false, points: { size: 5, show: data.series[number][2].filter((each) => each != null).length < 40 } };
    });
    const x = data.times || data.labels.map((_, number) => number);
    const most = bars ? Math.max(1, ...stacked[stacked.length - 1]) : Math.max(1, ...data.series.flatMap(([, , values]) => values.map((each) => each || 0)));
    return {
      options: {
        width, height: 180, series: [{ label: "", value: (_, at) => at == null ? "" : data.labels ? data.labels[at] : new Date(at * 1000).toLocaleTimeString() }, ...series],
        axes: axes(data.unit, data.labels, width), cursor: { y: false, points: { size: 6 } }, legend: { live: true },
        scales: { x: { time: !data.labels, ...(data.labels ? { range: [-0.6, x.length - 0.4] } : {}) }, y: { range: [0, most * 1.08] } }, padding: [8, 4, 0, 0],
      },
      data: [x, ...order.map((number) => (bars ? stacked[number] : data.series[number][2]))],
    };
  }

  function draw(place, again) {
    const text = place.dataset.chart;
    const before = drawn.get(place);
    if (before && before.text === text && !again) return;
    const data = JSON.parse(text);
    const built = options(data, place.clientWidth || 400);
    before?.chart.destroy();
    place.textContent = "";
    const chart = new uPlot(built.options, built.data, place);
    if (data.kind === "bars" && data.step)
      chart.over.addEventListener("click", () => {
        const begin = data.times[chart.cursor.idx];
        const [since, until] = [begin, begin + data.step].map((each) => `${new Date(each * 1000).toISOString().slice(0, 19)}Z`);
        location.href = `tasks?${new URLSearchParams({ q: `ended:<${since} ended:>${until}` })}`;
      });
    drawn.set(place, { chart, text });
  }

  const all = (again) => document.querySelectorAll("[data-chart]").forEach((place) => draw(place, again));
  document.addEventListener("onerow:decorate", () => all(false));
  addEventListener("onerow:theme", () => all(true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(true));
  let soon = 0;
  addEventListener("resize", () => { clearTimeout(soon); soon = setTimeout(() => all(true), 150); });
})();
