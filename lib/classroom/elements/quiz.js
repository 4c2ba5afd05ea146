/* <pf-quiz>: one question, radio answers, a Check button, and the reason after an answer.

   {"question": "…", "options": [{"text": "…", "why": "…", "right": true}, …], "why": "…"}
   `why` of the question stands in for that of the right option. Texts are plain text with `code` spans
   and \(…\) maths; nothing in them is taken as HTML. */

class Quiz extends Figure {
  build(body) {
    const quiz = this.data;
    if (!quiz.options.some((option) => option.right)) console.error("pf-quiz: no right answer", quiz.question);
    const name = unique("quiz");
    const result = make("div", { className: "pf-quiz-result", role: "status" });
    const group = make("fieldset", {}, rich(make("legend", {}), quiz.question));
    quiz.options.forEach((option, index) => {
      const radio = make("input", { type: "radio", name, value: String(index) });
      // the letter is also what names an answer that is nothing but a formula
      const letter = make("span", { className: "pf-quiz-letter", textContent: "ABCDEFGH"[index] });
      group.append(make("label", {}, radio, letter, rich(make("span", {}), option.text)));
    });
    const form = make("form", {}, group, make("button", { type: "submit", textContent: "Check" }), result);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.answer(form, result);
    });
    form.addEventListener("change", () => {
      result.replaceChildren();
      delete form.dataset.result;
    });
    body.append(form);
  }

  answer(form, result) {
    const quiz = this.data;
    const chosen = form.querySelector("input:checked");
    if (!chosen) {
      form.dataset.result = "none";
      result.replaceChildren("Choose an answer first.");
      return;
    }
    const option = quiz.options[Number(chosen.value)];
    const why = option.why || (option.right ? quiz.why : "") || "";
    form.dataset.result = option.right ? "right" : "wrong";
    const verdict = make("strong", { textContent: option.right ? "Right." : "Not this one." });
    result.replaceChildren(verdict, rich(make("span", {}), why && " " + why));
    typeset(result);
    // what keeps a reader's progress listens for this
    this.dispatchEvent(new CustomEvent("pf-answered", { bubbles: true, detail: { right: Boolean(option.right) } }));
  }
}

define("quiz", Quiz);
