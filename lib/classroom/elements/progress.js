/* <pf-progress>: what a reader has done, kept by this browser alone.

   {"chapters": {"02_attention": ["9c4ab1f0", …], …}}: the names of each chapter's quizzes. With one chapter it is that
   chapter's end, with a box to tick: a chapter is read when its reader says so, nobody else knows. With more it is the
   front page: a line, a mark beside each chapter, buttons to save, load and erase.
   Kept, and saved as a file, is {"plainformer": {"02_attention": 1, "9c4ab1f0": 3}}: a chapter is read (1); a quiz is
   still wrong (1), right after a wrong answer (2), right at the first try (3). So of two records the larger number stays. */

const STORE = "plainformer-progress";
let refused = ""; // what a browser that keeps nothing, or no more, was given: it lasts until the page is left

/* A quiz is called by its question, as classroom.elements.progress.quiz_name calls it. */
const quizName = (question) =>
  [...question].reduce((hash, c) => Math.imul(hash ^ c.codePointAt(0), 16777619) >>> 0, 2166136261).toString(16);

/* The record in a text of that form, with nothing else in it; null where the text is another. */
function recordIn(text) {
  try {
    const all = Object.entries(JSON.parse(text).plainformer);
    return Object.fromEntries(all.filter(([, value]) => [1, 2, 3].includes(value)));
  } catch {
    return null;
  }
}

function recall() {
  let text = refused;
  try {
    text ||= localStorage[STORE];
  } catch {}
  return recordIn(text) || {};
}

function keep(record) {
  const text = (refused = JSON.stringify({ plainformer: record }));
  try {
    if (record) localStorage[STORE] = text;
    else delete localStorage[STORE];
    refused = "";
  } catch {}
  showProgress();
}

function showProgress() {
  for (const part of document.querySelectorAll("pf-progress[data-ready]")) part.show();
}

class Progress extends Figure {
  build(body) {
    const stems = Object.keys(this.data.chapters);
    this.line = live();
    if (stems.length === 1) {
      const change = (read) => keep({ ...recall(), [stems[0]]: Number(read) });
      body.append((this.box = toggle({ label: "I have read this chapter", change })), this.line);
    } else {
      const file = make("input", { type: "file", accept: ".json", hidden: true });
      file.onchange = async () => {
        const more = recordIn(await file.files[0].text()), record = recall();
        file.value = "";
        for (const name in more) record[name] = Math.max(more[name], record[name] || 0);
        if (more) keep(record);
        this.line.append(more ? " Loaded." : " That file holds no progress of this course.");
      };
      const erase = () => confirm("Erase all that this browser has kept of your progress?") && keep();
      const acts = { "Save as a file": this.save, "Load a file": () => file.click(), Erase: erase };
      const button = ([textContent, onclick]) => make("button", { type: "button", textContent, onclick });
      body.append(this.line, make("div", { className: "pf-buttons" }, ...Object.entries(acts).map(button), file));
    }
    this.show();
  }

  show() {
    const record = recall(), all = Object.entries(this.data.chapters), sum = [0, 0, 0, 0];
    for (const [stem, names] of all) {
      const read = record[stem] || 0, results = names.map((name) => record[name]);
      const at = (least) => results.filter((result) => result >= least).length;
      [read, names.length, at(2), at(3)].forEach((value, k) => (sum[k] += value));
      if (this.box) this.box.set(read);
      const words = [read ? "read" : [], at(1) ? `${at(2)} of ${names.length} right` : []].flat().join(", ");
      for (const link of document.querySelectorAll(`.pf-chapters a[href*="${stem}"]`)) {
        const cell = link.parentNode;
        (cell.querySelector(".pf-mark") || cell.appendChild(make("span", { className: "pf-mark" }))).textContent = words;
      }
    }
    const [n_read, n_quizzes, n_right, n_first] = sum;
    this.line.textContent = (this.box ? "" : `${n_read} of ${all.length} chapters read. `) +
      `${n_right} of ${n_quizzes} questions right, ${n_first} at the first try.` +
      (refused && " Your browser refuses to keep this.");
  }

  save() {
    const href = URL.createObjectURL(new Blob([JSON.stringify({ plainformer: recall() })], { type: "application/json" }));
    make("a", { href, download: STORE + ".json" }).click();
    URL.revokeObjectURL(href);
  }
}

document.addEventListener("pf-answered", ({ target, detail }) => {
  if (!document.querySelector("pf-progress")) return; // in JupyterLab
  const record = recall(), name = quizName(target.data.question), before = record[name];
  record[name] = before > 1 ? before : detail.right ? (before ? 2 : 3) : 1;
  keep(record);
});
addEventListener("storage", showProgress); // another tab changed it
addEventListener("pageshow", showProgress); // or a page that the reader comes back from
define("progress", Progress);
