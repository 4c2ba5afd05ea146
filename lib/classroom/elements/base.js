/* What every element uses. All parts are joined inside one function, so these names are local to the script.

   Rules for a part: class Name extends Figure, with build() (once) and, if it has check vectors,
   compute(input) → the same structure as `expected`; define("name", Name) at its end.
   Every control is a native one with a label; results stand in a live(); numbers stand in a numbers() table. */

function make(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key in element && !key.includes("-")) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/* `code` and \(maths\) become elements, everything else stays text. */
function rich(element, text) {
  for (const part of String(text).split(/(`[^`]+`|\\\(.+?\\\))/s)) {
    if (/^`.+`$/s.test(part)) element.append(make("code", { textContent: part.slice(1, -1) }));
    else if (/^\\\(/.test(part)) element.append(make("span", { className: "math", textContent: part }));
    else element.append(part);
  }
  return element;
}

/* MathJax may still be starting, may be absent, and has set these formulas already if it starts later. */
async function typeset(element) {
  const mathjax = window.MathJax;
  if (!mathjax) return;
  if (!mathjax.startup || !mathjax.startup.promise) {
    if (document.readyState === "complete") return;
    await new Promise((done) => addEventListener("load", done, { once: true }));
  }
  if (mathjax.startup && mathjax.startup.promise) await mathjax.startup.promise;
  const waiting = [...element.querySelectorAll(".math")].filter((span) => !span.querySelector("mjx-container"));
  if (mathjax.typesetPromise && waiting.length) await mathjax.typesetPromise(waiting);
}

let count = 0;
const unique = (word) => `pf-${word}-${++count}`;

/* ---- numbers as words ---- */

const grouped = (value) => Math.round(value).toLocaleString("en-GB");
const percent = (value, digits = 1) => (100 * value).toFixed(digits) + "%";
/* 7241732096 → 7.24 G; three digits */
function scaled(value, unit = "") {
  const steps = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, prefix] = steps.find(([size]) => Math.abs(value) >= size) || [1, ""];
  return (`${Number((value / size).toPrecision(3))} ${prefix}${unit}`).trim();
}

/* ---- controls ---- */

/* A native range with its value beside it; `words(value)` is read out instead of the bare number. */
function slider({ label, min, max, step = 1, value, words = String, change }) {
  const id = unique("slider");
  const shown = make("output", { htmlFor: id, className: "pf-value", "aria-live": "off" });
  const input = make("input", { type: "range", id, min, max, step, value });
  const update = () => {
    shown.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    update();
    change(Number(input.value));
  });
  update();
  const row = make("div", { className: "pf-slider" }, rich(make("label", { htmlFor: id }), label), input, shown);
  row.set = (next) => {
    input.value = next;
    update();
  };
  return row;
}

/* One of a few: radio buttons that look like a row of buttons. Options are [value, words]. */
function choice({ label, options, value, change }) {
  const name = unique("choice");
  const row = make("fieldset", { className: "pf-choice" }, rich(make("legend", {}), label));
  for (const [option, words] of options) {
    const radio = make("input", { type: "radio", name, value: option, checked: String(option) === String(value) });
    radio.addEventListener("change", () => change(option));
    row.append(make("label", {}, radio, rich(make("span", {}), words)));
  }
  row.set = (next) => {
    for (const radio of row.querySelectorAll("input")) radio.checked = radio.value === String(next);
  };
  return row;
}

/* One of many. Options are [value, words]. */
function select({ label, options, value, change }) {
  const id = unique("select");
  const list = make("select", { id }, ...options.map(([v, words]) => make("option", { value: v, textContent: words })));
  list.value = value;
  list.addEventListener("change", () => change(list.value));
  const row = make("div", { className: "pf-select" }, rich(make("label", { htmlFor: id }), label), list);
  row.set = (next) => {
    list.value = next;
  };
  return row;
}

/* Yes or no. */
function toggle({ label, value = false, change }) {
  const box = make("input", { type: "checkbox", checked: value });
  box.addEventListener("change", () => change(box.checked));
  const row = make("label", { className: "pf-toggle" }, box, rich(make("span", {}), label));
  row.set = (next) => {
    box.checked = next;
  };
  return row;
}

/* ---- results ---- */

/* What changed, said once to a screen reader. */
const live = () => make("div", { className: "pf-live", role: "status" });

/* A folded table of the figure's numbers; .show(header, rows) fills it. The first cell of a row heads it. */
function numbers(caption) {
  const head = make("thead"), body = make("tbody");
  const inner = make("table", {}, make("caption", { textContent: caption }), head, body);
  // what scrolls is reached by keyboard, and so has a name
  const scroll = make("div", { className: "pf-scroll", tabIndex: 0, role: "group", ariaLabel: caption }, inner);
  const box = make("details", { className: "pf-numbers" }, make("summary", { textContent: "The numbers" }), scroll);
  box.show = (header, rows) => {
    const cells = (row) => row.map((cell, k) => rich(make(k ? "td" : "th", k ? {} : { scope: "row" }), cell));
    head.replaceChildren(make("tr", {}, ...header.map((cell) => rich(make(cell ? "th" : "td", cell ? { scope: "col" } : {}), cell))));
    body.replaceChildren(...rows.map((row) => make("tr", {}, ...cells(row))));
  };
  return box;
}

/* ---- the element itself ---- */

class Figure extends HTMLElement {
  connectedCallback() {
    if (this.data) return;
    const source = this.querySelector("script[type='application/json']");
    if (source) {
      this.data = JSON.parse(source.textContent);
      this.verify();
      const body = make("div", { className: "pf-figure" });
      this.build(body);
      this.replaceChildren(body);
      this.dataset.ready = "yes";
      typeset(this);
    } else if (document.readyState === "loading") {
      document.addEventListener("DOMContentLoaded", () => this.connectedCallback(), { once: true });
    }
  }

  /* The library's check vectors, computed again here: a difference is an error that the tests of the pages see. */
  verify() {
    for (const { input, expected } of this.data.checks || []) {
      const found = this.compute(input);
      if (!equal(found, expected)) {
        console.error(`${this.localName}: ${JSON.stringify(input)} gives ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
      }
    }
  }
}

/* Equal to nine digits, or to 1e-9 where numbers are smaller than one. */
function equal(found, expected) {
  if (typeof expected === "number") {
    return typeof found === "number" && Math.abs(found - expected) <= 1e-9 * Math.max(1, Math.abs(expected));
  }
  if (expected === null || typeof expected !== "object") return found === expected;
  const keys = Object.keys(expected);
  return !!found && Object.keys(found).length === keys.length && keys.every((key) => equal(found[key], expected[key]));
}

function define(name, Part) {
  customElements.define(`pf-${name}`, Part);
}
