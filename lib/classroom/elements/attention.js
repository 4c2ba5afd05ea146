/* <pf-attention>: a sentence as a row of buttons; bars over the words say what the chosen one looks at.

   {"texts": [{"name", "words", "sizes": [layers, heads], "start": [layer, head, word], "weights": base64}, …]}
   One byte a weight, in hundredths: for each layer and head the lower triangle, row by row. */

class Attention extends Figure {
  /* What word `word` looks at in a layer and head of a text, in hundredths: one number for each word up to itself. */
  compute([text, layer, head, word]) {
    const { words, sizes, weights } = this.data.texts[text];
    this.bytes = this.bytes || [];
    const bytes = (this.bytes[text] = this.bytes[text] || atob(weights));
    const start = ((layer * sizes[1] + head) * words.length * (words.length + 1)) / 2 + (word * (word + 1)) / 2;
    return Array.from(bytes.slice(start, start + word + 1), (byte) => byte.charCodeAt(0));
  }

  build(body) {
    const texts = this.data.texts;
    this.controls = make("div", { className: "pf-attention-controls" });
    this.words = make("div", { className: "pf-attention-words", role: "radiogroup", ariaLabel: "The word that looks" });
    this.square = svg("svg", { role: "img" });
    this.result = live();
    this.table = numbers("The whole head: each row looks, columns are looked at");
    this.words.addEventListener("keydown", (event) => this.key(event));
    if (texts.length > 1) {
      const options = texts.map((text, number) => [number, text.name]);
      body.append(choice({ label: "Text", options, value: 0, change: (number) => this.open(number) }));
    }
    const view = make("div", { className: "pf-attention-view" }, this.square, this.result);
    body.append(this.controls, this.words, view, this.table);
    this.open(0);
  }

  /* Another text: its own layers, heads and words. */
  open(number) {
    const { words, sizes, start } = this.data.texts[number];
    const count = (n) => Array.from({ length: n }, (_, k) => [k, String(k + 1)]);
    this.text = number;
    [this.layer, this.head, this.word] = start;
    this.controls.replaceChildren(
      select({ label: "Layer", options: count(sizes[0]), value: this.layer, change: (k) => this.show({ layer: Number(k) }) }),
      choice({ label: "Head", options: count(sizes[1]), value: this.head, change: (k) => this.show({ head: k }) }),
    );
    this.buttons = words.map((word, k) => {
      const button = make("button", { type: "button", role: "radio" });
      button.append(
        make("span", { className: "pf-attention-bar pf-moves" }),
        make("span", { className: "pf-attention-word", textContent: word }),
        make("span", { className: "pf-value" }),
      );
      button.addEventListener("click", () => this.show({ word: k }));
      return button;
    });
    this.words.replaceChildren(...this.buttons.flatMap((button) => [button, " "]));
    this.show({});
  }

  key(event) {
    const last = this.buttons.length - 1, at = this.word;
    const steps = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.show({ word: (steps[event.key] + last + 1) % (last + 1) });
    this.buttons[this.word].focus();
  }

  show(change) {
    Object.assign(this, change);
    const { words } = this.data.texts[this.text];
    const rows = words.map((_, word) => this.compute([this.text, this.layer, this.head, word]));
    const row = rows[this.word];
    const written = (weight) => (weight / 100).toFixed(2);
    this.buttons.forEach((button, k) => {
      const [bar, , value] = button.children;
      button.setAttribute("aria-checked", k === this.word);
      button.tabIndex = k === this.word ? 0 : -1;
      button.classList.toggle("pf-attention-later", k > this.word);
      bar.style.setProperty("--weight", (row[k] || 0) / 100);
      value.textContent = k > this.word ? "–" : written(row[k]);
    });
    this.draw(words, rows);
    // a word that stands twice is told with its place
    const place = (k) => (words.indexOf(words[k]) === words.lastIndexOf(words[k]) ? "" : ` (word ${k + 1})`);
    const name = (k) => `“${words[k]}”${place(k)}`;
    const most = row.map((weight, k) => [weight, k]).filter(([weight]) => weight).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const looks = most.slice(0, 3).map(([weight, k]) => `at ${k === this.word ? "itself" : name(k)} with ${written(weight)}`);
    this.result.textContent = `Layer ${this.layer + 1}, head ${this.head + 1}: ${name(this.word)} looks ${looks.join(", ")}.`;
    this.table.show(["", ...words], rows.map((row, k) => [words[k], ...words.map((_, j) => (j > k ? "" : written(row[j])))]));
  }

  /* The head's pattern as a square, the chosen row framed. */
  draw(words, rows) {
    const cell = 14, left = 62, size = cell * words.length;
    const parts = [];
    rows.forEach((row, k) => {
      const chosen = k === this.word;
      const text = svg("text", { x: left - 6, y: k * cell + 11, "text-anchor": "end", "font-weight": chosen ? 700 : 400 });
      text.textContent = words[k];
      parts.push(text);
      row.forEach((weight, j) => {
        parts.push(svg("rect", { x: left + j * cell, y: k * cell + 1, width: cell - 1, height: cell - 1, "fill-opacity": weight / 100 }));
      });
    });
    parts.push(svg("rect", { class: "pf-attention-frame", x: left - 1, y: this.word * cell, width: (this.word + 1) * cell + 1, height: cell + 1 }));
    this.square.setAttribute("viewBox", `0 0 ${left + size + 2} ${size + 2}`);
    this.square.setAttribute("aria-label", `The pattern of the whole head; row ${this.word + 1} is framed`);
    this.square.replaceChildren(...parts);
  }
}

define("attention", Attention);
