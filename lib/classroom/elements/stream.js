/* <pf-stream>: the residual stream of one position as a running sum, read out after every block.

   {"texts": [{"text", "added": [[a·a, x·a, m·m, y·m], …], "best": [[[token, probability], …], …]}, …],
    "start": block}   products are means over the features; the first row is the embedding's */

class Stream extends Figure {
  /* The running sum after every block of a text, from what each adds. */
  walk(text) {
    let square = 0;
    return this.data.texts[text].added.map(([a, xa, m, ym]) => {
      const before = square, between = before + a + 2 * xa;
      square = between + m + 2 * ym;
      const [stream, attention, mlp] = [square, a, m].map(Math.sqrt);
      return { stream, attention, mlp, cosines: [xa / Math.sqrt(a * before), ym / Math.sqrt(m * between)] };
    });
  }

  compute([text, block]) {
    const { stream, attention, mlp } = this.walk(text)[block];
    return [stream, attention, mlp].map((size) => Number(size.toFixed(3)));
  }

  build(body) {
    const { texts, start } = this.data;
    this.text = 0;
    this.block = start;
    this.view = make("div", { className: "pf-streams" });
    this.result = live();
    this.table = numbers("What each block adds, and the sum");
    body.append(
      choice({
        label: "Text", options: texts.map(({ text }, n) => [n, `${text} …`]), value: 0,
        change: (text) => this.show({ text }),
      }),
      slider({
        label: "After block", min: 0, max: texts[0].added.length - 1, value: start,
        words: (n) => (n ? String(n) : "0, embedding"), change: (block) => this.show({ block }),
      }),
      this.view, this.result, this.table,
    );
    this.show({});
  }

  show(change) {
    Object.assign(this, change);
    const { block } = this, best = this.data.texts[this.text].best, sums = this.walk(this.text), now = sums[block];
    const fixed = (size) => size.toFixed(2).replace("-", "−"), told = JSON.stringify;
    const top = 10 * Math.ceil(Math.max(...sums.map((sum) => Math.max(sum.stream, sum.mlp))) / 10);
    const x = (n) => 24 + (312 * (n + 0.5)) / sums.length, y = (size) => 160 - (150 * size) / top;
    const text = (words, x, y, kind = "") => svg("text", { x, y, class: kind }, words);
    const line = (kind) => svg("polyline", { class: kind, points: sums.map((sum, n) => [x(n), y(sum[kind])]).slice(1) });
    const tens = [...Array(Math.floor((sums.length - 1) / 10) + 1)].map((_, n) => 10 * n);
    const chart = svg("svg", { viewBox: "0 0 340 190", "aria-hidden": "true" },
      ...sums.map(({ stream }, n) => svg("rect", { class: n === block ? "now" : "", x: x(n) - 4, y: y(stream), width: 8, height: 160 - y(stream) })),
      line("attention"), line("mlp"),
      svg("path", { d: "M24 160H336" }),
      ...[0, top / 2, top].map((size) => text(size, 20, y(size) + 3, "left")),
      ...tens.map((n) => text(n, x(n), 172)), text("after block", 180, 187));
    const patch = (kind, words) => make("span", {}, make("span", { className: `pf-patch ${kind}` }), words);
    const guess = ([token, chance]) => {
      const bar = make("span", { className: "pf-streams-bar" });
      bar.style.setProperty("--share", percent(chance));
      return make("p", {}, make("code", { textContent: told(token) }), bar, make("span", { className: "pf-value", textContent: percent(chance) }));
    };
    this.view.replaceChildren(
      make("div", {}, make("p", { className: "pf-streams-key" }, "Size of", patch("sum", "the stream"), patch("attention", "what attention adds"), patch("mlp", "what the MLP adds")), chart),
      make("div", {}, make("p", {}, "If the model stopped here, it would say"), ...best[block].map(guess)),
    );
    const [token, chance] = best[block][0];
    this.result.textContent =
      (block
        ? `Block ${block} takes the stream from ${fixed(sums[block - 1].stream)} to ${fixed(now.stream)}: attention adds ${fixed(now.attention)}, the MLP ${fixed(now.mlp)}.`
        : `The embedding alone has size ${fixed(now.stream)}.`) + ` Read out here, ${told(token)} leads with ${percent(chance)}.`;
    this.table.show(
      ["block", "attention adds", "cosine", "MLP adds", "cosine", "stream", "would say"],
      sums.map(({ stream, attention, mlp, cosines }, n) => [
        n, ...(n ? [fixed(attention), fixed(cosines[0]), fixed(mlp), fixed(cosines[1])] : ["–", "–", "–", "–"]), fixed(stream), told(best[n][0][0]),
      ]),
    );
  }
}

define("stream", Stream);
