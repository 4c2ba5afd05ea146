/* <pf-tape>: prefill and decoding as tapes that fill, one a kind of cache; height × width is bytes.

   {"layers", "width", "bytes", "rows": [{"name", "words", "heads", "windowed", "weights"}, …],
    "scales": [{"words", "square", "length", "window", "prompt"}, …], "start": tokens}
   A scale's numbers are tokens; `weights` are the bytes of weights that a step reads. */

class Tape extends Figure {
  /* What row number `row` holds after `read` tokens, in bytes, and what the next step has to read. */
  compute([row, scale, read]) {
    const { layers, width, bytes, rows, scales } = this.data;
    const token = 2 * layers * rows[row].heads * width * bytes;
    const kept = rows[row].windowed ? Math.min(read, scales[scale].window) : read;
    return { kept, token, now: kept * token, step: rows[row].weights + kept * token };
  }

  build(body) {
    const { scales } = this.data;
    this.scale = 0;
    this.read = 0;
    const button = (change) => make("button", { type: "button", onclick: () => this.show(change()) });
    const here = () => scales[this.scale];
    this.prefill = button(() => here().prompt);
    this.next = button(() => this.read + here().square);
    const again = button(() => 0);
    again.textContent = "Start again";
    this.at = slider({
      label: "Tokens read", min: 0, max: here().length, value: 0, words: grouped, change: (read) => this.show(read),
    });
    this.tapes = make("div", { className: "pf-tapes" });
    this.result = live();
    this.table = numbers("Each cache now, and what one more step reads");
    const patch = (kind) => make("span", { className: `pf-patch ${kind}` });
    const key = make("p", { className: "pf-tapes-key" },
      "Height: key heads. Width: slots. Area: bytes.",
      make("span", {}, patch("prompt"), "from the prompt"), make("span", {}, patch("since"), "written since"));
    body.append(
      choice({
        label: "One square is", options: scales.map(({ words }, n) => [n, words]), value: 0,
        change: (scale) => {
          this.scale = scale;
          this.at.querySelector("input").max = here().length;
          this.show(0);
        },
      }),
      make("div", { className: "pf-buttons" }, this.prefill, this.next, again),
      this.at, this.tapes, key, this.result, this.table,
    );
    this.show(this.data.start);
  }

  show(read) {
    const { rows, scales } = this.data, scale = scales[this.scale];
    const { prompt, square, length, window } = scale;
    this.read = read = Math.min(read, length);
    this.at.set(read);
    this.prefill.textContent = `Prefill ${grouped(prompt)} tokens`;
    this.next.textContent = square > 1 ? `Next ${square} tokens` : "Next token";
    const found = rows.map((_, row) => this.compute([row, this.scale, read]));
    this.tapes.replaceChildren(...rows.map((row, n) => make("div", {},
      make("p", {}, make("span", {}, make("strong", { textContent: row.name }), ` ${row.words}`),
        make("span", { className: "pf-value" }, make("strong", { textContent: this.size(found[n].now) }), `, ${this.size(found[n].token)} a token`)),
      this.draw(row, scale),
    )));
    const first = Math.min(read, prompt), calls = read - first;
    this.result.textContent = !read ? "The caches are empty."
      : `${grouped(read)} token${read > 1 ? "s" : ""} read: ${grouped(first)} of the prompt in one call` +
        (calls ? `, ${grouped(calls)} more in ${calls > 1 ? "a call each" : "one call"}.` : ".") +
        (read > window ? ` The window's ring has dropped the oldest ${grouped(read - window)}.` : "") +
        (read === length ? " The tape ends here." : "");
    this.table.show(
      ["kind", "slots filled", "bytes kept", "a token adds", "a step reads", "of it cache"],
      rows.map((row, n) => {
        const { kept, now, token, step } = found[n];
        return [row.name, grouped(kept), this.size(now), this.size(token), this.size(step), percent(now / step)];
      }),
    );
  }

  /* A ring's tape is as long as its window: token p is written to slot p mod window, over an older one. */
  draw({ heads, windowed }, { square, length, window, prompt }) {
    const { read } = this, slots = windowed ? window : length, unit = 320 / length;
    const height = (64 * heads) / this.data.rows[0].heads;
    const cuts = [Math.max(0, read - slots), Math.min(prompt, read), read];
    for (let turn = slots; turn < read; turn += slots) cuts.push(turn);
    cuts.sort((a, b) => a - b);
    const from = Math.max(0, read - slots), parts = [];
    cuts.forEach((cut, n) => {
      const end = cuts[n + 1];
      if (cut >= from && end > cut) {
        parts.push(svg("rect", { class: cut < prompt ? "prompt" : "since", x: (cut % slots) * unit + 2, y: 9, width: (end - cut) * unit, height }));
      }
    });
    let grid = "";
    for (let slot = square; slot < slots; slot += square) grid += `M${slot * unit + 2} 9v${height}`;
    const head = (read % slots) * unit + 2;
    const full = !windowed && read === length;
    return svg("svg", { viewBox: `0 0 324 ${height + 11}`, "aria-hidden": "true" },
      ...parts,
      svg("path", { class: "grid", d: grid }),
      svg("rect", { class: "frame", x: 1, y: 8, width: slots * unit + 2, height: height + 2 }),
      ...(full ? [] : [svg("path", { class: "head", d: `M${head + unit / 2} 7l-3.5-5.5h7z` })]),
    );
  }

  size(bytes) {
    let step = 0;
    for (; bytes >= 1024; step++) bytes /= 1024;
    return `${Number(bytes.toPrecision(4))}\u00a0${["B", "KiB", "MiB", "GiB"][step]}`;
  }
}

define("tape", Tape);
