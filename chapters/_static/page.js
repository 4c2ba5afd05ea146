/* What a page needs beyond the theme: wide things scroll inside themselves and can be reached by keyboard. */
(function () {
  "use strict";
  const WIDE = ".cell_output, div.math, mjx-container[display='true'], .pf-inline-wide, .cell_output .text_html, " +
    ".cell_output pre, div.highlight pre, .pst-scrollable-table-container, .pf-claims table";

  const READABLE = 0.62; // a figure shrinks to this share of its size at most: beyond it, its words are too small

  function widenFigures() {
    for (const image of document.querySelectorAll(".cell_output img")) {
      // the builder writes a figure's size as an attribute or a style; remember it, since it is changed below
      image.dataset.width ||= parseFloat(image.getAttribute("width") || image.style.width) || image.naturalWidth;
      const natural = parseFloat(image.dataset.width);
      const wide = natural * READABLE > document.documentElement.clientWidth - 32; // the page's margins
      image.classList.toggle("pf-wide", wide);
      image.style.width = wide ? natural * READABLE + "px" : natural + "px";
    }
  }

  /* A box that scrolls must take the focus, and a box that does not must not be a tab stop. */
  function markScrolling() {
    widenFigures();
    for (const formula of document.querySelectorAll("mjx-container:not([display])")) {
      const room = formula.parentElement.closest("p, li, td, dd, div");
      // a table gives its cells the width they need, and scrolls as a whole
      const wide = room !== null && !formula.closest("table") && formula.scrollWidth > room.clientWidth;
      formula.classList.toggle("pf-inline-wide", wide);
    }
    for (const box of document.querySelectorAll(WIDE)) {
      const scrolls = box.scrollWidth > box.clientWidth + 1 &&
        /auto|scroll/.test(getComputedStyle(box).overflowX);
      if (scrolls) box.tabIndex = 0;
      else if (box.tabIndex === 0) box.removeAttribute("tabindex");
    }
  }

  /* What the theme leaves to do: its logo lies in no landmark. */
  function nameLogo() {
    const logo = document.querySelector(".sidebar-primary-item:has(> .navbar-brand)");
    if (!logo) return;
    logo.setAttribute("role", "navigation");
    logo.setAttribute("aria-label", "Home");
  }

  /* Printed pages are light, and show what is folded away on the screen. */
  const root = document.documentElement;
  function openForPrint() {
    root.dataset.pfTheme = root.dataset.theme;
    root.dataset.theme = "light";
    for (const box of document.querySelectorAll("details:not([open])")) {
      box.dataset.pfPrinted = "yes";
      box.open = true;
    }
  }
  function closeAfterPrint() {
    root.dataset.theme = root.dataset.pfTheme;
    for (const box of document.querySelectorAll("details[data-pf-printed]")) {
      delete box.dataset.pfPrinted;
      box.open = false;
    }
  }

  addEventListener("load", function () {
    nameLogo();
    const math = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    Promise.resolve(math).then(markScrolling);
  });
  addEventListener("resize", markScrolling);
  document.addEventListener("toggle", markScrolling, true);
  addEventListener("beforeprint", openForPrint);
  addEventListener("afterprint", closeAfterPrint);
})();
