/* <pf-dial>: one pair of a query's and a key's features, turned by their positions like two hands.

   {"d_head", "base", "pairs": [index, …], "query": [a, b], "key": [a, b], "far": n, "start": [pair, m, n, both]} */

class Dial extends Figure {
  speed(pair) {
    return this.data.base ** ((-2 * pair) / this.data.d_head);
  }

  /* Both arrows at their positions, and their dot product. */
  compute([pair, m, n]) {
    const turn = ([a, b], angle) => {
      const cos = Math.cos(angle), sin = Math.sin(angle);
      return [a * cos - b * sin, b * cos + a * sin];
    };
    const query = turn(this.data.query, m * this.speed(pair)), key = turn(this.data.key, n * this.speed(pair));
    return { query, key, product: query[0] * key[0] + query[1] * key[1] };
  }

  build(body) {
    const { pairs, far, start } = this.data;
    this.state = [...start];
    const change = (place) => (value) => {
      this.state[place] = Number(value);
      this.show();
    };
    const options = pairs.map((pair) => [pair, `${pair}: a full turn in ${scaled((2 * Math.PI) / this.speed(pair))} positions`]);
    const range = (label, max, place) => slider({ label, min: 0, max, value: start[place], change: change(place) });
    this.view = make("div", { className: "pf-dials" });
    this.result = live();
    this.table = numbers("The two hands");
    body.append(
      select({ label: "Pair of features", options, value: start[0], change: change(0) }),
      range("Query's position, m", far, 1),
      range("Key's position, n", far, 2),
      range("Move both to the right by", 500, 3),
      this.view, this.result, this.table,
    );
    this.show();
  }

  show() {
    const { far } = this.data, [pair, m, n, both] = this.state;
    const { query, key, product } = this.compute([pair, m + both, n + both]);
    const word = (number, digits = 3) => number.toFixed(digits).replace("-", "−");
    const text = (words, x, y, kind = "") => svg("text", { x, y, class: kind }, words);
    const lengths = [Math.hypot(...query), Math.hypot(...key)], most = lengths[0] * lengths[1], angle = ([a, b]) => Math.atan2(b, a);
    const point = (turned, radius) => [100 + radius * Math.cos(turned), 100 - radius * Math.sin(turned)];

    /* the dial */
    const hand = (name, kind, vector) => {
      const turned = angle(vector), length = (64 * Math.hypot(...vector)) / Math.max(...lengths);
      const [x, y] = point(turned, length), [side, above] = point(turned, length + 13);
      return [
        svg("line", { class: kind, x1: 100, y1: 100, x2: x, y2: y }),
        svg("circle", { class: kind, cx: x, cy: y, r: 4 }),
        text(name, side, above + 4, kind),
      ];
    };
    const from = angle(key), gap = Math.atan2(key[0] * query[1] - key[1] * query[0], product);
    const arc = `M${point(from, 20)}A20 20 0 0 ${gap > 0 ? 0 : 1} ${point(from + gap, 20)}`;
    const dial = svg("svg", { viewBox: "0 0 200 200", "aria-hidden": "true" },
      svg("path", { class: "face", d: "M14 100a86 86 0 1 0 172 0a86 86 0 1 0-172 0M6 100H194M100 6V194" }),
      svg("path", { class: "arc", d: arc }), ...hand("k", "key", key), ...hand("q", "query", query));

    /* the product over the distance */
    const x = (distance) => 170 + (130 * distance) / far, y = (height) => 92 - (66 * height) / most;
    const curve = [];
    for (let step = -far; step <= far; step += 0.25) curve.push([x(step), y(this.compute([pair, step, 0]).product)]);
    const chart = svg("svg", { viewBox: "0 0 320 200", "aria-hidden": "true" },
      svg("path", { class: "face", d: `M40 26V158M40 92H300M${x(m - n)} 26V158` }),
      svg("polyline", { points: curve }), svg("circle", { class: "now", cx: x(m - n), cy: y(product), r: 5 }),
      ...[-most, 0, most].map((tick) => text(word(tick, 1), 34, y(tick) + 4, "left")),
      ...[-far, 0, far].map((tick) => text(word(tick, 0), x(tick), 172)),
      text("dot product", 40, 16, "right"), text("distance, m − n", 170, 192));
    this.view.replaceChildren(dial, chart);

    const moved = both ? ` Unmoved, at ${m} and ${n}, the product is ${word(this.compute([pair, m, n]).product)} as well.` : "";
    this.result.textContent =
      `Pair ${pair}. Query at ${m + both}, key at ${n + both}: distance ${word(m - n, 0)}. ` +
      `From key to query it is ${word(gap, 2)} radians, and the dot product is ${word(product)}.${moved}`;
    const row = (name, position, vector) => [
      name, position, word(position * this.speed(pair)), `(${vector.map((entry) => word(entry)).join(",\u00a0")})`,
    ];
    this.table.show(["hand", "position", "turned by, radians", "now"], [row("query", m + both, query), row("key", n + both, key)]);
  }
}

define("dial", Dial);
