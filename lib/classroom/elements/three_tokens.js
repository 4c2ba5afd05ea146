/* <pf-three_tokens>: a small head, step by step, with the mask and the scale as choices.

   {"tokens": […], "q": [[…]], "k": [[…]], "v": [[…]], "scales": [[width, words], …]} */

class ThreeTokens extends Figure {
  compute({ mask, width }) {
    const { q, k, v } = this.data;
    const scores = q.map((a) => k.map((b) => a.reduce((sum, x, n) => sum + x * b[n], 0)));
    const scaled = scores.map((row, i) => row.map((score, j) => (mask && j > i ? null : score / Math.sqrt(width))));
    const weights = scaled.map((row) => {
      const largest = Math.max(...row.filter((score) => score !== null));
      const powers = row.map((score) => (score === null ? 0 : Math.exp(score - largest)));
      const total = powers.reduce((a, b) => a + b);
      return powers.map((power) => power / total);
    });
    const output = weights.map((row) => v[0].map((_, n) => row.reduce((sum, weight, j) => sum + weight * v[j][n], 0)));
    return { scores, scaled, weights, output };
  }

  build(body) {
    const { scales } = this.data;
    this.state = { mask: false, width: scales[0][0] };
    this.steps = make("div", { className: "pf-steps" });
    this.result = live();
    body.append(
      choice({ label: "Divide scores by", options: scales, value: this.state.width, change: (width) => this.show({ width }) }),
      toggle({ label: "Causal mask: no token looks at a later one", change: (mask) => this.show({ mask }) }),
      this.steps,
      this.result,
    );
    this.show({});
  }

  show(change) {
    Object.assign(this.state, change);
    const { tokens, q, k, v } = this.data;
    const { scores, scaled, weights, output } = this.compute(this.state);
    const { mask, width } = this.state;
    const short = (x) => (x === null ? "−∞" : String(Number(x.toFixed(3))).replace("-", "−"));
    const long = (x) => (x === null ? "−∞" : x.toFixed(3).replace("-", "−"));
    const vector = (row, words) => `(${row.map(words).join(", ")})`;
    const scale = [width === 1 ? "not divided" : `÷ √${width}`, ...(mask ? ["masked"] : [])].join(", ");
    this.steps.replaceChildren(
      this.step("Given", ["query", "key", "value"], tokens.map((_, i) => [q, k, v].map((matrix) => [vector(matrix[i], short)]))),
      this.step("1. Scores: query · key", tokens, scores.map((row) => row.map((x) => [short(x)]))),
      this.step(`2. Scores ${scale}`, tokens, scaled.map((row) => row.map((x) => [long(x), 0, x === null]))),
      this.step("3. Weights: softmax of each row", tokens, weights.map((row, i) => row.map((x, j) => [mask && j > i ? "0" : long(x), x, mask && j > i]))),
      this.step("4. Output: weights × values", ["output"], output.map((row) => [[vector(row, long)]])),
    );
    const last = tokens.length - 1;
    const ahead = tokens.slice(0, last).map((token, i) => [token, weights[i].slice(i + 1).reduce((a, b) => a + b)]);
    const looks = ahead.map(([token, weight], i) => `“${token}”${i ? "" : " puts"} ${long(weight)}${i ? "" : " of its weight on later tokens"}`).join(", ");
    const top = weights[last].indexOf(Math.max(...weights[last]));
    this.result.textContent =
      (mask ? `Nothing looks ahead, and “${tokens[0]}” sees itself alone.` : `${looks}.`) +
      ` The largest weight of “${tokens[last]}” is ${long(weights[last][top])}, and it becomes ${vector(output[last], long)}.`;
  }

  /* A small table, one row a token; a cell is [words, share that tints it, whether it is masked]. */
  step(caption, header, rows) {
    const cell = ([textContent, share, masked]) => {
      const box = make("td", { textContent, className: masked ? "pf-step-none" : "" });
      if (share) box.style.setProperty("--share", percent(0.36 * share));
      return box;
    };
    const head = make("tr", {}, make("td"), ...header.map((textContent) => make("th", { scope: "col", textContent })));
    const line = (row, i) => make("tr", {}, make("th", { scope: "row", textContent: this.data.tokens[i] }), ...row.map(cell));
    return make("table", {}, make("caption", { textContent: caption }), make("thead", {}, head), make("tbody", {}, ...rows.map(line)));
  }
}

define("three_tokens", ThreeTokens);
