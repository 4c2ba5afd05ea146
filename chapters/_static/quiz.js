/* <pf-quiz>: one question, radio answers, a Check button, and the reason after an answer.

   Inside the element: <script type="application/json">
     {"question": "…", "options": [{"text": "…", "why": "…", "right": true}, …], "why": "…"}
   </script>, then the same as readable text with the answer in <details>, for a reader without scripts.
   `why` of the question stands in for that of the right option. Texts are plain text with `code` spans
   and \(…\) maths; nothing in them is taken as HTML. */
(function () {
  "use strict";
  if (!window.customElements || customElements.get("pf-quiz")) return;
  let count = 0;

  function make(name, properties, ...children) {
    const element = Object.assign(document.createElement(name), properties);
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

  class Quiz extends HTMLElement {
    connectedCallback() {
      if (this.querySelector(":scope > form")) return;
      const source = this.querySelector("script[type='application/json']");
      if (source) this.show(JSON.parse(source.textContent));
      else if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", () => this.connectedCallback(), { once: true });
      }
    }

    show(quiz) {
      if (!quiz.options.some((option) => option.right)) console.error("pf-quiz: no right answer", quiz.question);
      const name = "pf-quiz-" + ++count;
      const result = make("div", { className: "pf-quiz-result" });
      result.setAttribute("role", "status");
      const group = make("fieldset", {}, rich(make("legend", {}), quiz.question));
      quiz.options.forEach((option, index) => {
        const radio = make("input", { type: "radio", name: name, value: String(index) });
        // the letter is also what names an answer that is nothing but a formula
        const letter = make("span", { className: "pf-quiz-letter", textContent: "ABCDEFGH"[index] });
        group.append(make("label", {}, radio, letter, rich(make("span", {}), option.text)));
      });
      const form = make("form", {}, group, make("button", { type: "submit", textContent: "Check" }), result);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.answer(quiz, form, result);
      });
      form.addEventListener("change", () => {
        result.replaceChildren();
        delete form.dataset.result;
      });
      this.replaceChildren(form);
      typeset(form);
    }

    answer(quiz, form, result) {
      const chosen = form.querySelector("input:checked");
      if (!chosen) {
        form.dataset.result = "none";
        result.replaceChildren("Choose an answer first.");
        return;
      }
      const option = quiz.options[Number(chosen.value)];
      const why = option.why || (option.right ? quiz.why : "") || "";
      const verdict = option.right ? "Right." : "Not this one.";
      form.dataset.result = option.right ? "right" : "wrong";
      result.replaceChildren(make("strong", { textContent: verdict }), rich(make("span", {}), why && " " + why));
      typeset(result);
    }
  }
  customElements.define("pf-quiz", Quiz);
})();
