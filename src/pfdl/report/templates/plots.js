"use strict";
/* Draws the plots of a page as SVG. Colours are custom properties of the page, so light and dark need no redrawing. */
const plots = (() => {
  const DASHES = ["", "7 4", "2 3", "8 3 2 3", "12 4", "12 3 2 3 2 3"];
  const SVG = "http://www.w3.org/2000/svg";
  const LETTER = 6.6;  // mean width of a character at 12 pixels
  const REACH = 40;  // pixels from the pointer within which a point is told
  const spin = (n, r, turn) => {
    const corner = (i) => [r * Math.sin(turn + 2 * Math.PI * i / n), -r * Math.cos(turn + 2 * Math.PI * i / n)];
    return `M${Array.from({ length: n }, (_, i) => corner(i).map((one) => one.toFixed(2)).join(" ")).join("L")}Z`;
  };
  const MARKERS = [
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z", spin(4, 4.6, Math.PI / 4), spin(4, 4.8, 0), spin(3, 4.6, 0),
    "M-4 -2.5L-2.5 -4L0 -1.5L2.5 -4L4 -2.5L1.5 0L4 2.5L2.5 4L0 1.5L-2.5 4L-4 2.5L-1.5 0Z",
    "M-1.2 -4.5H1.2V-1.2H4.5V1.2H1.2V4.5H-1.2V1.2H-4.5V-1.2H-1.2Z", spin(5, 4.4, Math.PI), spin(3, 4.6, Math.PI),
    spin(5, 4.4, 0), spin(6, 4.4, 0),
  ];

  function make(parent, name, attributes = {}, text = "") {
    const element = document.createElementNS(parent.namespaceURI === SVG || name === "svg" ? SVG : parent.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    parent.append(element);
    return element;
  }

  const shown = (value, digits) => value.toFixed(digits).replace("-", "−");

  function niceTicks(low, high, most) {
    const rough = (high - low) / Math.max(most, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number += 1) ticks.push(number * step);
    if (ticks.length < 3 && most < 20) return niceTicks(low, high, most + 2);  // the next step may be too wide
    return ticks.map((value) => ({ value, text: shown(value, digits) }));
  }

  function verticalRange(series) {
    const ends = series.flatMap((one) => one.y.flatMap((y, i) => {
      if (y === null) return [];
      const error = one.error?.[i] ?? 0;
      return [y - error, y + error];
    }));
    let [low, high] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    if (low === high) [low, high] = [low - 1, high + 1];
    const space = (high - low) * 0.06;
    return [low - space, high + space];
  }

  function horizontalAxis(drawing, left, right) {
    const { names, series } = drawing;
    if (names.length) {
      const slot = (right - left) / names.length;
      const at = (name) => left + slot * (names.indexOf(name) + 0.5);
      return { at, slot, ticks: names.map((name) => ({ value: name, text: name })) };
    }
    const places = series.flatMap((one) => one.x);
    const bend = drawing.log ? Math.log10 : (x) => x;
    let [low, high] = [Math.min(...places), Math.max(...places)].map(bend);
    if (low === high) [low, high] = [low - 1, high + 1];
    const space = (high - low) * 0.03;
    const at = (x) => left + (right - left) * (bend(x) - low + space) / (high - low + 2 * space);
    const ticks = drawing.ticks.length
      ? drawing.ticks.map((value) => ({ value, text: String(Number(value.toPrecision(6))).replace("-", "−") }))
      : niceTicks(low, high, Math.max(2, (right - left) / 90));
    return { at, slot: 0, ticks };
  }

  /** The ticks whose texts do not run into the one before. */
  function uncrowded(ticks, at) {
    let end = -Infinity;
    return ticks.filter(({ value, text }) => {
      const half = text.length * LETTER / 2 + 4;
      const fits = at(value) - half >= end;
      if (fits) end = at(value) + half;
      return fits;
    });
  }

  function drawLines(place, drawing, width) {
    const { series } = drawing;
    const [low, high] = verticalRange(series);
    const inner = width < 500 ? 210 : 270;
    const top = 26;
    const vertical = niceTicks(low, high, inner / 45);
    const left = 12 + LETTER * Math.max(...vertical.map((tick) => tick.text.length));
    const right = width - 12;
    const axis = horizontalAxis(drawing, left, right);
    const longest = Math.max(...axis.ticks.map((tick) => tick.text.length)) * LETTER;
    const turned = drawing.names.length > 0 && longest + 6 > axis.slot;
    const foot = turned ? Math.min(110, longest * 0.6 + 14) : 20;
    const base = top + inner;
    const height = base + foot + 22;
    const y = (value) => base - inner * (value - low) / (high - low);

    const svg = make(place, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "chart" });
    make(svg, "text", { x: 0, y: 12, class: "axis-name" }, drawing.y);
    make(svg, "text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle", class: "axis-name" }, drawing.x);
    for (const { value, text } of vertical) {
      const tick = make(svg, "g", { class: "ytick" });
      make(tick, "line", { x1: left, x2: right, y1: y(value), y2: y(value), class: Math.abs(value) < 1e-12 ? "zero" : "grid" });
      make(tick, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text);
    }
    for (const { value, text } of turned ? axis.ticks : uncrowded(axis.ticks, axis.at)) {
      const tick = make(svg, "g", { class: "xtick", transform: `translate(${axis.at(value)} ${base})` });
      make(tick, "line", { y2: 4, class: "grid" });
      make(tick, "text", turned
        ? { "text-anchor": "end", transform: "translate(3 14) rotate(-35)" } : { y: 17, "text-anchor": "middle" }, text);
    }

    const told = [];
    series.forEach((one, number) => {
      const aside = drawing.grouped ? axis.slot * 0.75 * ((number + 0.5) / series.length - 0.5) : 0;
      const points = one.x.flatMap((x, i) => one.y[i] === null ? [] : [{ one, i, x: axis.at(x) + aside, y: y(one.y[i]) }]);
      told.push(...points);
      drawSeries(make(svg, "g", { class: "trace", style: `color: var(--c${one.colour % 10})` }), one, points, y);
    });
    if (series.length > 1) drawLegend(place, series);
    return { svg, told };
  }

  function drawSeries(group, one, points, y) {
    const spot = ({ x }, value) => `${x.toFixed(1)} ${value.toFixed(1)}`;
    if (one.error && one.band) {
      const upper = points.map((point) => spot(point, y(one.y[point.i] + one.error[point.i])));
      const lower = points.map((point) => spot(point, y(one.y[point.i] - one.error[point.i]))).reverse();
      make(group, "path", { d: `M${[...upper, ...lower].join("L")}Z`, class: "band" });
    } else if (one.error) {
      const bar = (point) => {
        const [high, low] = [1, -1].map((sign) => y(one.y[point.i] + sign * one.error[point.i]));
        return `M${spot(point, high)}V${low.toFixed(1)}m-2.5 0h5M${spot(point, high)}m-2.5 0h5`;
      };
      make(group, "path", { d: points.map(bar).join(""), class: "bars" });
    }
    if (one.style.includes("lines")) {
      const gap = (point, i) => i === 0 || points[i - 1].i !== point.i - 1;  // a missing value interrupts the line
      const line = points.map((point, i) => `${gap(point, i) ? "M" : "L"}${spot(point, point.y)}`).join("");
      make(group, "path", { d: line, class: "line", "stroke-dasharray": DASHES[one.colour % DASHES.length] });
    }
    if (one.style.includes("markers")) {
      const dots = make(group, "g", { class: "points" });
      for (const point of points) {
        make(dots, "path", { d: MARKERS[one.colour % MARKERS.length], transform: `translate(${point.x} ${point.y})` });
      }
    }
  }

  function drawLegend(place, series) {
    const list = make(place, "ul", { class: "legend", "aria-hidden": "true" });
    for (const one of series) {
      const item = make(list, "li");
      const swatch = make(item, "svg", { width: 30, height: 12, viewBox: "-15 -6 30 12", style: `color: var(--c${one.colour % 10})` });
      if (one.style.includes("lines")) {
        make(swatch, "path", { d: "M-15 0H15", class: "line", "stroke-dasharray": DASHES[one.colour % DASHES.length] });
      }
      if (one.style.includes("markers")) {
        make(make(swatch, "g", { class: "points" }), "path", { d: MARKERS[one.colour % MARKERS.length] });
      }
      make(item, "span", {}, one.name);
    }
  }

  /** Returns what to say at a place, or null. */
  const nearest = (drawing, told) => (x, y) => {
    const far = (point) => Math.hypot(point.x - x, point.y - y);
    const point = told.reduce((best, one) => (best === null || far(one) < far(best) ? one : best), null);
    if (point === null || far(point) > REACH) return null;
    const { one, i } = point;
    const where = typeof one.x[i] === "string" ? one.x[i] : String(Number(one.x[i].toPrecision(6))).replace("-", "−");
    const error = one.error ? ` ± ${shown(one.error[i], drawing.digits)}` : "";
    return { point, lines: [one.labels?.[i] ?? one.name, `${drawing.x}: ${where}`, shown(one.y[i], drawing.digits) + error] };
  };

  function drawHeatmap(place, drawing, width, colour) {
    const { names, size } = drawing;
    const bytes = Uint8Array.from(atob(drawing.values), (letter) => letter.charCodeAt(0));
    const side = Math.min(width, 560);
    const box = make(place, "div", { class: "heatmap", style: `width: ${side}px` });
    const canvas = make(box, "canvas", { width: size, height: size });
    const stops = [colour("--page"), colour("--c1"), colour("--ink")].map((one) => one.match(/[\d.]+/g).slice(0, 3).map(Number));
    const pixels = new ImageData(size, size);
    bytes.forEach((byte, i) => {
      if (byte === 255) return;  // a hole
      const part = 2 * byte / 254;
      const from = Math.min(Math.floor(part), 1);
      stops[from].forEach((one, k) => { pixels.data[4 * i + k] = one + (stops[from + 1][k] - one) * (part - from); });
      pixels.data[4 * i + 3] = 255;
    });
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    const svg = make(box, "svg", { viewBox: `0 0 ${size} ${size}`, class: "frames" });
    for (const [first, last] of drawing.frames) {
      const long = last - first + 1;
      make(svg, "rect", { x: first, y: first, width: long, height: long });
    }
    const say = (x, y) => {
      const [column, row] = [x, y].map((one) => Math.min(size - 1, Math.max(0, Math.floor(one * size / side))));
      const byte = bytes[row * size + column];
      const value = byte === 255 ? "not known" : shown(byte / 254, 2);
      return { point: { x, y }, lines: [names[row], names[column], value] };
    };
    return { svg, say };
  }

  function tell(place, area, say) {
    const tip = make(place, "div", { class: "tooltip", hidden: "" });
    const hide = () => { tip.hidden = true; };
    const show = (event) => {
      const box = area.getBoundingClientRect();
      const found = say(event.clientX - box.left, event.clientY - box.top);
      if (found === null) { hide(); return; }
      tip.replaceChildren();
      found.lines.forEach((line, i) => make(tip, i === found.lines.length - 1 ? "b" : "span", {}, line));
      tip.hidden = false;
      const ahead = found.point.x + 14 + tip.offsetWidth <= place.clientWidth;
      tip.style.left = `${Math.max(0, ahead ? found.point.x + 14 : found.point.x - 14 - tip.offsetWidth)}px`;
      tip.style.top = `${Math.max(0, found.point.y - tip.offsetHeight - 8)}px`;
    };
    for (const event of ["pointermove", "pointerdown"]) area.addEventListener(event, show);
    area.addEventListener("pointerleave", hide);
  }

  /** Draws into a place, replacing what is there. */
  return function draw(place, drawing, width, colour) {
    place.replaceChildren();
    const heatmap = drawing.kind === "heatmap";
    const { svg, told, say } = heatmap ? drawHeatmap(place, drawing, width, colour) : drawLines(place, drawing, width);
    svg.setAttribute("role", "img");  // one picture with the caption as its text; single ticks would tell nothing
    svg.setAttribute("aria-labelledby", place.dataset.caption);
    tell(place, svg, say ?? nearest(drawing, told));
  };
})();
