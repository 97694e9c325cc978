"use strict";
// The controls, the requests they make, and the words around the plots.

const $ = (id) => document.getElementById(id);
const form = $("controls");
const tab = Math.random().toString(36).slice(2);
const TITLES = { theory: "/api/theory", twin: "/api/twin" };
const REFINE_AFTER = 250; // ms of rest
const SAY_AFTER = 900;

const state = { query: "", move: 0, theory: null, twin: null, kernel: null };

function query() {
  const given = new URLSearchParams();
  for (const node of form.elements) {
    if (!node.name || (node.type === "radio" && !node.checked)) continue;
    given.set(node.name, node.dataset.values ? node.dataset.values.split(",")[node.value] : node.value);
  }
  return given.toString();
}

function showValue(node) {
  const output = $(`${node.id}-value`);
  if (!output) return;
  const word = node.dataset.values ? node.dataset.values.split(",")[node.value] : node.value;
  output.textContent = word === "inf" ? "∞" : String(Number(word));
  node.setAttribute("aria-valuetext", word === "inf" ? "infinitely many" : output.textContent);
}

class Moved extends Error {}

async function ask(panel, stage, move, signal) {
  const response = await fetch(`${TITLES[panel]}?${state.query}&stage=${stage}&tab=${tab}&move=${move}`, { signal });
  const found = await response.json();
  if (response.status === 409) throw new Moved();
  if (!response.ok) throw new Error(found.error);
  return found;
}

// One panel's requests: the newest settings, one request at a time, then better answers at rest.
class Panel {
  constructor(name, draw) {
    Object.assign(this, { name, draw, running: false, wanted: false, refining: null, took: 0 });
  }

  async move() {
    this.refining?.abort();
    if (this.running) return void (this.wanted = true);
    this.running = true;
    try {
      do {
        this.wanted = false;
        const move = state.move, start = performance.now();
        const found = await ask(this.name, 0, move).catch((error) => {
          if (error instanceof Moved) return null;
          throw error;
        });
        if (!found) continue;
        this.took = performance.now() - start;
        this.show(found);
        if (!this.wanted && !found.done) this.refine(move);
      } while (this.wanted);
    } catch (error) {
      problem(error);
    } finally {
      this.running = false;
    }
  }

  show(found) {
    state[this.name] = found;
    this.draw(found);
    words();
  }

  async refine(move) {
    const control = (this.refining = new AbortController());
    try {
      for (let stage = 1; ; stage++) {
        await new Promise((resolve) => setTimeout(resolve, REFINE_AFTER));
        if (control.signal.aborted || move !== state.move) return;
        const found = await ask(this.name, stage, move, control.signal);
        if (move !== state.move) return;
        this.show(found);
        if (found.done) return;
      }
    } catch (error) {
      if (!(error instanceof Moved) && error.name !== "AbortError") problem(error);
    }
  }
}

const panels = [new Panel("theory", drawTheory), new Panel("twin", drawTwin)];

function drawTheory(found) {
  drawDensityNow();
  drawDepth($("depth-plot"), found.depth);
  document.querySelector("#depth-panel .band").hidden = !found.depth.cosine.low;
  document.querySelector("#depth-panel .dashed").hidden = !found.depth.limit;
  drawKernel(found.kernel);
  drawCloudNow();
}

function drawTwin() {
  drawDensityNow();
  drawCloudNow();
}

function drawDensityNow() {
  if (state.theory) drawDensity($("density"), state.theory.density, state.twin?.seen, $("log").checked);
}

function drawCloudNow() {
  if (!state.theory) return;
  const outside = drawCloud($("cloud"), state.theory.contours, state.twin?.points);
  const count = state.twin ? state.twin.points.length : 0;
  $("cloud-at").textContent = count ? `${count} networks${outside ? `, ${outside} of them outside the frame` : ""}` : "";
}

function drawKernel(kernel) {
  const paint = palette(), all = kernel.values.flat();
  const low = Math.min(0, ...all), high = Math.max(0, ...all);
  drawHeat($("kernel"), kernel.values, paint);
  drawBar($("bar"), low, high, paint);
  $("bar-high").textContent = short(high);
  $("bar-low").textContent = short(low);
  const list = $("through");
  list.replaceChildren();
  for (const { block, values } of kernel.through) {
    const item = document.createElement("li"), canvas = document.createElement("canvas");
    drawHeat(canvas, values, paint);
    item.append(canvas, block ? `block ${block}` : "input");
    list.append(item);
  }
}

function words() {
  const { theory, twin } = state;
  if (!theory) return;
  document.body.classList.remove("problem");
  const text = theory.summary + (twin ? ` ${twin.summary}, theory ${theory.density.lost ? 0 : short(Number(theory.density.variance.toPrecision(2)))}.` : "");
  $("summary").textContent = text;
  const draws = theory.draws === null ? "exact" : theory.heads === null
    ? `${theory.draws} draws of all heads’ scores`
    : `${theory.draws} replicates of ${theory.heads} draws a block`;
  const more = theory.done && (!twin || twin.done) ? "" : " · refining …";
  $("status").textContent = `${draws} · answered in ${Math.round(Math.max(...panels.map((p) => p.took)))} ms${more}`;
  $("density").setAttribute("aria-label", "Output density. " + theory.summary.split(". ")[0]);
  $("depth-plot").setAttribute("aria-label", "Collapse through depth. " + theory.summary.split(". ").slice(1).join(". "));
  const { values, tokens } = theory.kernel;
  $("kernel").setAttribute("aria-label", `Token kernel of ${tokens} tokens; first row: ` + values[0].slice(0, 8).map(short).join(", "));
  if (twin) $("cloud").setAttribute("aria-label", "The twin's cloud. " + twin.summary);
  clearTimeout(words.timer);
  words.timer = setTimeout(() => ($("live").textContent = text), SAY_AFTER);
}

function problem(error) {
  document.body.classList.add("problem");
  const gone = error instanceof TypeError;
  $("status").textContent = gone ? "The explorer does not answer; is `limitformer explore` still running?" : error.message;
  if (!state.theory) $("summary").textContent = "No answer.";
}

function texts() {
  clearTimeout(texts.timer);
  texts.timer = setTimeout(async () => {
    try {
      const response = await fetch(`/api/texts?${state.query}`);
      if (!response.ok) return;
      const found = await response.json();
      $("toml").textContent = found.toml;
      $("python").textContent = found.python;
      const link = found.query ? `/?${found.query}` : "/";
      history.replaceState(null, "", link);
      $("permalink").value = location.origin + link;
    } catch (error) {
      problem(error);
    }
  }, 120);
}

function moved() {
  $("w_std").disabled = $("activation").value === "none";
  for (const node of form.querySelectorAll("input[type=range]")) showValue(node);
  const now = query();
  if (now === state.query) return;
  state.query = now;
  state.move++;
  for (const panel of panels) panel.move();
  texts();
}

form.addEventListener("input", moved);
form.addEventListener("submit", (event) => event.preventDefault());
$("reset").addEventListener("click", () => location.assign("/"));
$("log").addEventListener("change", drawDensityNow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.theory && drawKernel(state.theory.kernel));

$("kernel").addEventListener("pointermove", (event) => {
  if (!state.theory) return;
  const box = event.target.getBoundingClientRect(), { values, tokens } = state.theory.kernel;
  const index = (offset, size) => Math.min(tokens - 1, Math.max(0, Math.floor((offset / size) * tokens)));
  const a = index(event.clientY - box.top, box.height), b = index(event.clientX - box.left, box.width);
  $("kernel-at").textContent = `tokens ${a + 1} and ${b + 1}: ${short(values[a][b])}`;
});
$("kernel").addEventListener("pointerleave", () => ($("kernel-at").textContent = "token by token"));

document.addEventListener("click", async (event) => {
  const from = event.target.dataset?.copy;
  if (!from) return;
  const node = $(from), text = node.value ?? node.textContent;
  try {
    await navigator.clipboard.writeText(text);
    event.target.textContent = "Copied";
    $("live").textContent = "Copied";
    setTimeout(() => (event.target.textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(node);
  }
});

moved();
