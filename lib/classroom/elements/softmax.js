/* <pf-softmax>: one query, a few keys, the width on a slider; weights of raw and of divided scores.

   {"widths": [1, 2, …], "scores": [[raw score of each key], … for each width], "start": width} */

class Softmax extends Figure {
  weights(width, divide) {
    const raw = this.data.scores[this.data.widths.indexOf(width)];
    const scores = raw.map((score) => (divide ? score / Math.sqrt(width) : score));
    const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const total = powers.reduce((a, b) => a + b);
    return powers.map((power) => power / total);
  }

  compute(width) {
    const look = (divide) => {
      const weights = this.weights(width, divide);
      return { largest: Math.max(...weights), trace: weights.reduce((sum, a) => sum + a * (1 - a), 0) };
    };
    return { raw: look(false), divided: look(true) };
  }

  build(body) {
    const { widths, start } = this.data;
    this.panels = make("div", { className: "pf-panels" });
    this.result = live();
    this.table = numbers("Scores and weights of each key");
    const last = widths.length - 1, words = (n) => String(widths[n]), value = widths.indexOf(start);
    body.append(
      slider({ label: "Width of query and keys", min: 0, max: last, value, words, change: (n) => this.show(widths[n]) }),
      this.panels,
      this.result,
      this.table,
    );
    this.show(start);
  }

  show(width) {
    const { widths, scores } = this.data;
    const found = this.compute(width), root = Math.sqrt(width);
    const raw = this.weights(width, false), divided = this.weights(width, true);
    const x = (n) => 34 + (148 * n) / (widths.length - 1), y = (share) => 112 - 100 * share;
    const bars = (kind, weights) => weights.map((weight, n) => {
      const step = 166 / weights.length;
      return svg("rect", { class: kind, x: 30 + n * step + 1.5, y: y(weight), width: step - 3, height: 100 * weight });
    });
    const line = (kind) => {
      const traces = widths.map((one) => this.compute(one)[kind].trace);
      const points = traces.map((trace, n) => `${x(n)},${y(trace)}`).join(" ");
      const at = widths.indexOf(width);
      return [svg("polyline", { class: kind, points }), svg("circle", { class: kind, cx: x(at), cy: y(traces[at]), r: 4.5 })];
    };
    const ends = [0, widths.length >> 1, widths.length - 1].map((n) => this.word(widths[n], x(n), 127, "middle"));
    this.panels.replaceChildren(
      this.panel("raw", "Weights, not divided", bars("raw", raw)),
      this.panel("divided", `Weights, divided by √${width}`, bars("divided", divided)),
      this.panel("", "Trace, over the width", [...line("raw"), ...line("divided"), ...ends]),
    );
    const told = ({ largest, trace }) => `largest weight ${largest.toFixed(3)}, trace ${trace.toFixed(3)}`;
    this.result.textContent = `Width ${width}. Not divided: ${told(found.raw)}. Divided: ${told(found.divided)}.`;
    this.table.show(
      ["key", "score", "weight", "score divided", "weight"],
      scores[widths.indexOf(width)].map((score, n) => [
        n + 1,
        ...[score, raw[n], score / root, divided[n]].map((value, k) => value.toFixed(k % 2 ? 3 : 2).replace("-", "−")),
      ]),
    );
  }

  word(text, x, y, anchor) {
    const box = svg("text", { x, y, "text-anchor": anchor });
    box.textContent = text;
    return box;
  }

  /* A title, with a patch of the colour, over a plot from 0 to 1. */
  panel(kind, title, parts) {
    const grid = [0, 0.5, 1].flatMap((share) => {
      const y = 112 - 100 * share;
      return [svg("line", { x1: 30, x2: 196, y1: y, y2: y }), this.word(share, 24, y + 4, "end")];
    });
    const name = make("p", {}, ...(kind ? [make("span", { className: `pf-patch ${kind}` })] : []), title);
    const plot = svg("svg", { viewBox: "0 0 200 132", "aria-hidden": "true" }, ...grid, ...parts);
    return make("div", {}, name, plot);
  }
}

define("softmax", Softmax);
