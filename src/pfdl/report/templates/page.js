"use strict";
(() => {
  const root = document.documentElement;
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  const probe = document.getElementById("announcer");
  const plots = [];
  const KEY = "pfdl-report-theme";
  const PRINT_WIDTH = 660;
  const touched = window.matchMedia("(pointer: coarse)").matches;
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
    plots.forEach(draw);
  }
  const currentTheme = () => chosen ?? (systemDark.matches ? "dark" : "light");

  function draw(plot) {
    const colour = (name) => {
      probe.style.color = `var(${name})`;  // resolves light-dark(), which a custom property by itself does not
      return window.getComputedStyle(probe).color;
    };
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map(colour);
    const paper = plot.place.closest(".side-by-side") ? PRINT_WIDTH / 2 - 20 : PRINT_WIDTH;
    const width = plot.printing ? paper : plot.place.clientWidth;
    const data = plot.drawing.data.map((trace) => {
      if (trace.type === "heatmap") {
        return { ...trace, colorscale: [[0, colour("--page")], [0.5, colour("--c1")], [1, ink]] };
      }
      if (trace.meta?.colour === undefined) return trace;
      const own = colour(`--c${trace.meta.colour % 10}`);
      const bars = trace.error_y ? { error_y: { ...trace.error_y, color: own } } : {};
      return { ...trace, line: { ...trace.line, color: own }, marker: { ...trace.marker, color: own }, ...bars };
    });
    const perLine = Math.max(1, Math.floor(width / 190));
    const legendHeight = data.length > 1 ? 20 * Math.ceil(data.length / perLine) + 8 : 0;
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: soft, tickcolor: line, exponentformat: "power" };
    const given = plot.drawing.layout;
    const layout = {
      ...given,
      xaxis: { ...axis, ...given.xaxis },
      yaxis: { ...axis, ...given.yaxis },
      width,
      height: given.meta?.square ? Math.min(width, 560) : (width < 500 ? 280 : 360) + legendHeight,
      margin: given.meta?.square ? { l: 10, r: 10, t: 14, b: 14 } : { l: 10, r: 14, t: 14, b: 56 + legendHeight },
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom" },
      showlegend: data.length > 1,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colour("--shade"), bordercolor: line, font: { color: ink } },
      dragmode: touched ? false : "zoom",  // a finger that scrolls the page must not zoom a plot
    };
    const config = {
      displaylogo: false, displayModeBar: touched ? false : "hover", modeBarButtons: [["toImage", "resetScale2d"]],
    };
    window.Plotly.react(plot.place, data, layout, config);
    // One picture with the caption as its text; ticks and legends read one by one would tell nothing.
    const [first, ...others] = plot.place.querySelectorAll("svg.main-svg");
    first.setAttribute("role", "img");
    first.setAttribute("aria-labelledby", plot.place.dataset.caption);
    others.forEach((layer) => layer.setAttribute("aria-hidden", "true"));
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

  if (window.Plotly) {
    for (const place of document.querySelectorAll(".plot")) {
      const drawing = JSON.parse(place.parentElement.querySelector(":scope > script").textContent);
      plots.push({ place, drawing, printing: false });
    }
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
    waiting = window.setTimeout(() => plots.forEach(draw), 150);
  });

  const folded = [];
  const prepareForPaper = (printing) => {
    plots.forEach((plot) => { plot.printing = printing; });
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
