/* <pf-calculator>: any model's parameters, FLOPs, cache and speed, from a preset and sliders.

   {"fields": [name, …], "presets": {name: [value of each field, …]}, "about": {name: words}, "start": {field: value},
    "groups": [[title, [[field, label, kind, stops or options, unit], …]], …], "machines": [[name, bandwidth, peak], …]}

   Every field is a number, in the book's letters (calculator.py says which); yes and no are 1 and 0. */

const addUp = (parts) => Object.values(parts).reduce((a, b) => a + b);

class Calculator extends Figure {
  model(preset) {
    const { fields, presets } = this.data;
    return { preset, ...Object.fromEntries(fields.map((field, k) => [field, presets[preset][k]])) };
  }

  /* plainformer.parameters.breakdown, flops.forward and sequence, cache.bytes_…, roofline.decode_tokens_per_second */
  compute(input) {
    const c = { ...this.data.start, ...this.model(input.preset), ...input };
    const { L, E, d, d_ff, n_vocab, T, B, n_experts, logits } = c;
    const kv = (d / c.h) * c.h_kv, norm = c.norm * d, cross = E && L, routed = n_experts > 1 ? n_experts : 0;
    const linear = (a, b, bias) => a * b + b * bias;
    const attention = 2 * (linear(d, d, c.bias * c.attn_bias) + linear(d, kv, c.bias * c.attn_bias));
    const mlp = (1 + c.gate) * linear(d, d_ff, c.bias) + linear(d_ff, d, c.bias);
    const parameters = {
      embed: n_vocab * d,
      positions: c.n_places * d,
      token_types: c.n_token_types * d,
      embed_norm: c.embed_norm * norm,
      attention: (L + E) * attention,
      cross_attention: cross * attention,
      router: (L + E) * d * routed,
      mlp: (L + E) * n_experts * mlp,
      norms: (2 * (L + E) + cross) * norm,
      final_norm: c.final_norms * norm,
      pool: c.pool * linear(d, d, 1),
      unembed: logits * (1 - c.tied) * n_vocab * d,
    };
    /* n of T tokens pass through, of whose queries and keys so many pairs meet; a source is as long as the text */
    const work = (n, pairs) => {
      const meet = (word, layers, met) => {
        const query = 2 * layers * n * d * d, key = 2 * layers * n * d * kv, scores = 2 * d * met;
        const parts = { query, key, value: key, scores, mix: scores, out: query };
        return Object.fromEntries(Object.entries(parts).map(([part, one]) => [word + part, one]));
      };
      const up = 2 * (L + E) * n * d * d_ff * c.n_active;
      return {
        ...meet("", L + E, L * pairs + E * n * T),
        ...meet("cross_", cross, cross * n * T),
        router: 2 * (L + E) * n * d * routed,
        gate: c.gate * up,
        up,
        down: up,
        unembed: 2 * logits * n * d * n_vocab,
      };
    };
    const kept = Math.min(T, c.window || T), pairs = c.causal ? (kept * (kept + 1)) / 2 + (T - kept) * kept : T * T;
    const total = addUp(parameters), idle = 1 - c.n_active / n_experts;
    const found = {
      parameters,
      active: total - parameters.mlp * idle,
      last: E ? null : work(1, kept),
      mean: work(1, pairs / T),
      text: { ...work(T, pairs), pool: 2 * c.pool * d * d },
      cache: null,
      step: null,
    };
    if (c.causal && !E) {
      const token = 2 * L * kv * c.cache_bytes, sequence = kept * token, batch = B * sequence;
      found.cache = { token, sequence, batch };
      const rows = (part) => Math.max(0, parameters[part] - B * d);
      const unread = rows("positions") + rows("token_types") + (c.tied ? 0 : rows("embed")) + parameters.mlp * idle ** B;
      const weights = (total - unread) * c.bytes;
      const reading = (weights + batch) / c.bandwidth, multiplying = (B * addUp(found.last)) / c.peak;
      found.step = { weights, reading, multiplying, tokens: B / Math.max(reading, multiplying) };
    }
    return found;
  }

  /* ---- the state ---- */

  /* Where a slider stops: its own stops, the preset's size and the present one. Heads have an even width. */
  stops(field) {
    const { d, h } = this.state, fits = { h: (n) => d % (2 * n) === 0, h_kv: (n) => h % n === 0 }[field] || Boolean;
    const more = [this.model(this.state.preset)[field], this.state[field]].filter(Boolean);
    return [...new Set([...this.kinds[field][3], ...more])].filter(fits).sort((a, b) => a - b);
  }

  set(change) {
    const old = this.state;
    this.state = { ...old, ...change };
    const nearest = (field, wanted) => {
      const off = (n) => Math.abs(Math.log(n / wanted));
      this.state[field] = this.stops(field).reduce((a, b) => (off(b) < off(a) ? b : a));
    };
    if (!change.preset) {
      // heads keep their width, as nearly as they can; keys and values stay as many as queries, or as they were
      if (change.d) nearest("h", (change.d * old.h) / old.d);
      if (this.state.h !== old.h) nearest("h_kv", old.h_kv === old.h ? this.state.h : old.h_kv);
    }
    this.show();
  }

  /* The state that an address asks for; nothing if it asks for none, or for one that cannot be. */
  asked() {
    const { preset, ...sizes } = Object.fromEntries(new URLSearchParams(location.hash.split("#calculator?")[1]));
    if (!Object.hasOwn(this.data.presets, preset)) return;
    const state = { ...this.data.start, ...this.model(preset) };
    for (const [field, word] of Object.entries(sizes)) {
      const n = (state[field] = Number(word)), [, , kind, some] = this.kinds[field] || [];
      if (!(kind === "slider" ? n > 0 && n <= some.at(-1) && n % 1 === 0 : some?.some(([one]) => one === n))) return;
    }
    if (state.d % (2 * state.h) || state.h % state.h_kv) return;
    this.state = state;
    return true;
  }

  async copy() {
    history.replaceState(null, "", "#calculator?" + new URLSearchParams(this.link));
    const done = await navigator.clipboard?.writeText(location.href).then(() => "Copied.", () => 0);
    this.said.textContent = done || "See the address bar.";
  }

  /* ---- what is seen ---- */

  build(body) {
    const { groups, machines, start } = this.data;
    this.rows = {};
    this.kinds = {};
    const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick });
    const boxes = groups.map(([title, kinds]) => make("fieldset", {}, make("legend", { textContent: title }), ...kinds.map((kind) => {
      const [field, label, control, options, unit] = kind, own = { label, options, value: "" };
      this.kinds[field] = kind;
      own.change = (n) => this.set({ [field]: control === "slider" ? this.stops(field)[n] : +n });
      if (field === "preset") own.change = (name) => this.set(this.model(name));
      if (field === "machine") own.change = (n) => n && this.set({ bandwidth: machines[n][1], peak: machines[n][2] });
      if (control === "slider") Object.assign(own, { min: 0, max: 0, words: (n) => this.state && (unit ? scaled : grouped)(this.stops(field)[n], unit) });
      return (this.rows[field] = { slider, choice, select, toggle }[control](own));
    })));
    this.said = make("span", { role: "status" });
    this.about = make("p");
    const reset = button("Reset to preset", () => this.set(this.model(this.state.preset))), link = button("Copy link", () => this.copy());
    this.cards = make("dl");
    this.parts = make("table");
    this.result = live();
    this.table = numbers("Exact up to 9 × 10¹⁵; a step in bytes and seconds");
    body.append(...boxes, make("div", {}, this.about, reset, link, this.said), this.cards, make("div", { className: "pf-scroll" }, this.parts), this.result, this.table);
    if (!this.asked()) this.state = { ...start, ...this.model(start.preset) };
    this.show();
    const follow = () => {
      if (!this.asked()) return;
      this.show();
      this.scrollIntoView();
    };
    addEventListener("hashchange", follow);
    addEventListener("load", follow);
  }

  show() {
    const c = this.state, { machines, about } = this.data, own = this.model(c.preset);
    const at = machines.findIndex(([, bandwidth, peak]) => bandwidth === c.bandwidth && peak === c.peak);
    this.link = { preset: c.preset };
    let changed = "";
    for (const [field, row] of Object.entries(this.rows)) {
      const stops = this.kinds[field][2] === "slider" && this.stops(field);
      if (stops) row.querySelector("input").max = stops.length - 1;
      row.set(stops ? stops.indexOf(c[field]) : field === "machine" ? (at < 0 ? "" : at) : c[field]);
      if (field !== "machine" && c[field] !== own[field]) this.link[field] = c[field];
      if (field in own && c[field] !== own[field]) changed = ", changed";
    }
    this.about.textContent = about[c.preset] + `; heads ${c.d / c.h} wide`;
    this.said.textContent = "";

    const found = this.compute(c), { parameters: p, cache, step } = found, mean = c.mean || !found.last;
    const flops = mean ? found.mean : found.last, total = addUp(p), work = addUp(flops);
    const add = (names) => names.split(" ").reduce((sum, name) => sum + flops[name], 0);
    const meeting = add("scores mix cross_scores cross_mix"), mlp = add("router gate up down");
    const exact = (n) => (n < 99.5 ? +n.toPrecision(3) : n < 2 ** 53 ? grouped(n) : scaled(n));
    const which = `FLOPs of ${mean ? "the mean token" : "the last token"}`;
    const limit = step && (step.multiplying > step.reading ? "multiplying" : "reading " + (step.weights > cache.batch ? "weights" : "caches"));
    const machine = at < 0 ? `${scaled(c.bandwidth, "B/s")}, ${scaled(c.peak, "FLOP/s")}` : machines[at][0];
    const cards = [
      ["Parameters", exact(total), scaled(total * c.bytes, "B") + " of weights" + (found.active < total ? `, active ${scaled(found.active)}` : "")],
      [which, scaled(work), `${percent(meeting / work)} scores and mixing, whole text ${scaled(addUp(found.text))}`],
      ["KV cache", ...(cache ? [scaled(cache.sequence, "B"), `${scaled(cache.token, "B")} a token, ${scaled(cache.batch, "B")} the batch`] : ["–"])],
      ["Tokens/s, at most", ...(step ? [exact(step.tokens), `limit: ${limit}, on ${machine}`] : ["–"])],
    ];
    this.cards.replaceChildren(...cards.map(([name, ...said]) => make("div", {}, make("dt", { textContent: name }), ...said.map((textContent) => make("dd", { textContent })))));
    const rows = [
      ["embedding", p.embed + p.token_types],
      ["positions", p.positions],
      ["attention, projections", p.attention + p.cross_attention, work - meeting - mlp - flops.unembed],
      ["attention, scores and mixing", 0, meeting],
      ["MLP", p.mlp + p.router, mlp],
      ["norms", p.embed_norm + p.norms + p.final_norm],
      [p.pool ? "pooler" : "unembedding", p.unembed + p.pool, flops.unembed],
      ["together", total, work],
    ];
    const cell = (n, all) => make("td", { style: `--share:${(100 * n) / all}%` }, ...(n ? [exact(n), make("small", { textContent: percent(n / all) })] : ["–"]));
    this.parts.replaceChildren(
      make("caption", { textContent: c.preset + changed + (c.T > c.n_context ? `; T is beyond its ${grouped(c.n_context)} positions` : "") }),
      make("thead", {}, make("tr", {}, ...["part", "parameters", which].map((textContent) => make("th", { scope: "col", textContent })))),
      make("tbody", {}, ...rows.map(([name, n, m]) => make("tr", {}, make("th", { scope: "row", textContent: name }), cell(n, total), cell(m, work)))),
    );
    const all = { parameters: p, "FLOPs, token": flops, "FLOPs, text": found.text, "cache, bytes": cache || {}, step: step || {} };
    this.table.show(["", "exactly"], Object.entries(all).flatMap(([title, parts]) => Object.entries(parts).filter(([, n]) => n).map(([part, n]) => [`${title}: \`${part}\``, exact(n)])));
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => (this.result.textContent = cards.map((card) => card.join(": ")).join(". ")), 400);
  }
}

define("calculator", Calculator);
