"use strict";
// Plots of the explorer: lines and points in SVG, heat maps on canvas.

const SVG = "http://www.w3.org/2000/svg";

function element(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function short(v) {
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e4 || size < 1e-3) return v.toExponential(1).replace("+", "").replaceAll("-", "−");
  return String(Number(v.toPrecision(3))).replace("-", "−");
}

// About `count` round numbers between two others.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

function powers(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first) / count));
  const found = [];
  for (let p = last; p >= first; p -= step) found.push(10 ** p);
  return found;
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const tenTo = (v) => {
  const p = Math.round(Math.log10(v));
  return p >= -2 && p <= 2 ? short(v) : "10" + [...String(p)].map((c) => RAISED[c]).join("");
};

// Axes in a box of the picture; gives the two scales.
function axes(svg, box, spec) {
  const { left, right, top, bottom } = box, log = spec.log;
  const place = (v) => (log ? Math.log10(Math.max(v, spec.y[0])) : v);
  const [low, high] = spec.y.map(place);
  const fx = (v) => left + ((v - spec.x[0]) / (spec.x[1] - spec.x[0])) * (right - left);
  const fy = (v) => bottom - ((place(v) - low) / (high - low)) * (bottom - top);
  const marks = log ? powers(spec.y[0], spec.y[1], spec.rows || 5) : ticks(spec.y[0], spec.y[1], spec.rows || 5);
  for (const v of marks) {
    element(svg, "line", { class: "grid", x1: left, x2: right, y1: fy(v), y2: fy(v) });
    if (!spec.bare) element(svg, "text", { x: left - 6, y: fy(v) + 4, "text-anchor": "end" }, log ? tenTo(v) : short(v));
  }
  element(svg, "path", { class: "axis", d: `M${left} ${bottom}H${right}` });
  if (spec.xticks !== false) {
    for (const v of spec.xticks || ticks(spec.x[0], spec.x[1], 6)) {
      element(svg, "path", { class: "axis", d: `M${fx(v)} ${bottom}v4` });
      element(svg, "text", { x: fx(v), y: bottom + 16, "text-anchor": "middle" }, short(v));
    }
    element(svg, "text", { class: "name", x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, spec.xname);
  }
  element(svg, "text", { class: "name", x: left - 34, y: top - 7 }, spec.yname);
  return { fx, fy };
}

const path = (xs, ys, { fx, fy }) =>
  xs.map((x, i) => `${i ? "L" : "M"}${fx(x).toFixed(1)} ${fy(ys[i]).toFixed(1)}`).join("");

const between = (xs, low, high, scale) =>
  path(xs, low, scale) + path([...xs].reverse(), [...high].reverse(), scale).replace("M", "L") + "Z";

function said(svg, x, y, text) {
  element(svg, "text", { class: "name", x, y, "text-anchor": "middle" }, text);
}

function drawDensity(svg, density, seen, log) {
  svg.replaceChildren();
  if (density.lost) return said(svg, 220, 140, "no variance is left in double precision");
  const { y, gaussian, law } = density, curve = law || gaussian;
  const top = Math.max(...curve, ...gaussian), box = { left: 44, right: 424, top: 22, bottom: 250 };
  const scale = axes(svg, box, {
    x: [y[0], y[y.length - 1]], y: log ? [top * 1e-6, top * 1.6] : [0, top * 1.06], log,
    xname: "output", yname: "density",
  });
  if (law) {
    const low = law.map((p, i) => Math.max(0, p - 2 * density.sem[i]));
    const high = law.map((p, i) => p + 2 * density.sem[i]);
    element(svg, "path", { class: "area", d: between(y, low, high, scale) });
  }
  element(svg, "path", { class: "line", d: path(y, curve, scale) });
  element(svg, "path", { class: "other", d: path(y, gaussian, scale) });
  if (seen) {
    const inside = seen.filter((v) => Math.abs(v) <= y[y.length - 1]);
    element(svg, "path", { class: "rug", d: inside.map((v) => `M${scale.fx(v).toFixed(1)} 250v-9`).join("") });
  }
}

function drawDepth(svg, depth) {
  svg.replaceChildren();
  const n = depth.cosine.mean.length, xs = Array.from({ length: n }, (_, i) => i);
  const whole = ticks(0, n - 1, Math.min(8, n - 1)).filter(Number.isInteger);
  const lowest = Math.min(0, ...depth.cosine.mean, ...(depth.cosine.low || []));
  const floor = 1e-8;
  const curves = ["residual", "cosine"].flatMap((m) => [depth[m].mean, depth[m].low || []]);
  const least = Math.max(floor, Math.min(0.1, ...curves[0].filter((v) => v > 0), ...curves[1].filter((v) => v > 0)));
  const parts = [
    ["cosine", { left: 44, right: 424, top: 22, bottom: 122 }, { y: [lowest, 1.02], rows: 3, yname: "mean cosine of two tokens", xticks: false }],
    ["residual", { left: 44, right: 424, top: 156, bottom: 250 }, { y: [10 ** Math.floor(Math.log10(least)), 1.3], log: true, rows: 3, yname: "relative residual", xticks: whole, xname: "block (0: the input)" }],
  ];
  for (const [metric, box, spec] of parts) {
    const curve = depth[metric], scale = axes(svg, box, { x: [0, n - 1], ...spec });
    if (curve.low) element(svg, "path", { class: "area", d: between(xs, curve.low, curve.high, scale) });
    if (depth.limit) element(svg, "path", { class: "other", d: path(xs, depth.limit[metric], scale) });
    element(svg, "path", { class: "line", d: path(xs, curve.mean, scale) });
  }
}

function drawCloud(svg, contours, points) {
  svg.replaceChildren();
  if (!contours) return said(svg, 170, 160, "no variance is left in double precision");
  const box = { left: 44, right: 332, top: 22, bottom: 280 };
  const scale = axes(svg, box, {
    x: [-contours.x, contours.x], y: [-contours.y, contours.y], xname: "first token’s output", yname: "second token’s output",
  });
  let outside = 0;
  if (points) {
    const inside = points.filter(([a, b]) => Math.abs(a) <= contours.x && Math.abs(b) <= contours.y);
    outside = points.length - inside.length;
    element(svg, "path", { class: "points", d: inside.map(([a, b]) => `M${scale.fx(a).toFixed(1)} ${scale.fy(b).toFixed(1)}h0`).join("") });
  }
  contours.curves.forEach((curve, k) => {
    const d = path(curve.map((p) => p[0]), curve.map((p) => p[1]), scale);
    element(svg, "path", { class: k ? "contour outer" : "contour", d });
  });
  return outside;
}

const colour = (name) => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
};

function palette() {
  const [cold, zero, warm] = ["--cold", "--zero", "--warm"].map(colour);
  return (u) => {
    const end = u < 0 ? cold : warm, t = Math.min(1, Math.abs(u)) ** 1.4; // more contrast where tokens are alike
    return zero.map((z, k) => Math.round(z + (end[k] - z) * t));
  };
}

function drawHeat(canvas, values, paint) {
  const rows = values.length, columns = values[0].length;
  const size = Math.max(...values.map((row) => Math.max(...row.map(Math.abs)))) || 1;
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  values.flat().forEach((v, i) => image.data.set([...paint(v / size), 255], 4 * i));
  context.putImageData(image, 0, 0);
}

function drawBar(canvas, low, high, paint) {
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1, n = canvas.height;
  drawHeat(canvas, Array.from({ length: n }, () => [0]), paint);
  const context = canvas.getContext("2d"), image = context.createImageData(1, n);
  for (let i = 0; i < n; i++) image.data.set([...paint((high + ((low - high) * i) / (n - 1)) / size), 255], 4 * i);
  context.putImageData(image, 0, 0);
}
