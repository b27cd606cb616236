"use strict";
(() => {
  const root = document.documentElement;
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  const probe = document.getElementById("announcer");
  const drawn = [];
  const KEY = "pfdl-report-theme";
  const PRINT_WIDTH = 660;
  root.classList.add("live");

  // A private window or a strict browser may refuse storage; the page then forgets the choice and works all the same.
  const recall = () => { try { return window.localStorage.getItem(KEY); } catch { return null; } };
  const remember = (theme) => { try { window.localStorage.setItem(KEY, theme); } catch { /* forgotten */ } };
  let chosen = ["light", "dark"].includes(recall()) ? recall() : null;

  const announce = (words) => {
    const announcer = document.getElementById("announcer");
    announcer.textContent = "";
    window.setTimeout(() => { announcer.textContent = words; }, 50);  // the same words twice are to be heard twice
  };

  function showTheme(theme) {
    root.dataset.theme = theme;
    toggle.textContent = theme === "dark" ? "Light" : "Dark";
    toggle.setAttribute("aria-label", theme === "dark" ? "Light colours" : "Dark colours");
    drawn.forEach(draw);
  }
  const currentTheme = () => chosen ?? (systemDark.matches ? "dark" : "light");

  function colour(name) {
    probe.style.color = `var(${name})`;  // resolves light-dark(), which a custom property by itself does not
    return window.getComputedStyle(probe).color;
  }

  function draw({ place, drawing, printing }) {
    const paper = place.closest(".side-by-side, .glances") ? PRINT_WIDTH / 2 - 20 : PRINT_WIDTH;
    plots(place, drawing, printing ? paper : place.clientWidth, colour);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {  // not every browser lets a page from a file use the clipboard
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "unseen";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const label = button.textContent;
    const texts = JSON.parse(button.parentElement.querySelector("script").textContent);
    button.addEventListener("click", async () => {
      const done = await copy(texts[button.dataset.copy]);
      button.focus();
      button.textContent = done ? "Copied" : "Not copied";
      announce(done ? `Copied: ${button.getAttribute("aria-label")}` : "The browser did not allow copying.");
      window.setTimeout(() => { button.textContent = label; }, 2000);
    });
  }

  for (const place of document.querySelectorAll(".plot")) {
    const drawing = JSON.parse(place.parentElement.querySelector(":scope > script").textContent);
    drawn.push({ place, drawing, printing: false });
  }
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    chosen = currentTheme() === "dark" ? "light" : "dark";
    remember(chosen);
    showTheme(chosen);
  });
  systemDark.addEventListener("change", () => showTheme(currentTheme()));
  showTheme(currentTheme());

  let waiting = 0;
  let widthBefore = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === widthBefore) return;  // a phone's address bar comes and goes
    widthBefore = window.innerWidth;
    window.clearTimeout(waiting);
    waiting = window.setTimeout(() => drawn.forEach(draw), 150);
  });

  const folded = [];
  const prepareForPaper = (printing) => {
    drawn.forEach((plot) => { plot.printing = printing; });
    if (printing) {
      for (const details of document.querySelectorAll("details.facts:not([open])")) {
        details.open = true;
        folded.push(details);
      }
    } else {
      folded.splice(0).forEach((details) => { details.open = false; });
    }
    showTheme(printing ? "light" : currentTheme());
  };
  window.addEventListener("beforeprint", () => prepareForPaper(true));
  window.addEventListener("afterprint", () => prepareForPaper(false));
})();
