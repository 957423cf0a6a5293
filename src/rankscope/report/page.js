"use strict";
// Charts are drawn when they come near the window, in the colours of the page.
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 760px)");

// Dark colours are mixed with white where the page is dark: black becomes all but white.
function readable(colour) {
  if (!dark.matches || !/^#[0-9a-f]{6}$/i.test(colour)) return colour;
  const parts = [1, 3, 5].map(place => parseInt(colour.slice(place, place + 2), 16));
  const light = (0.3 * parts[0] + 0.6 * parts[1] + 0.1 * parts[2]) / 255;
  const white = Math.max(0, 0.85 - 2 * light);
  return `rgb(${parts.map(part => Math.round(part + (255 - part) * white)).join(",")})`;
}

function themed(chart) {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ink = colour("--ink"), line = colour("--line");
  const map = chart.data.some(trace => trace.type === "heatmap"); // what lies over one lies on its own, pale colours
  const data = chart.data.map(trace => {
    const own = { ...trace };
    if (own.type === "heatmap") { // its labels and words are in the data once, and beside every cell while it is drawn
      own.customdata = own.meta.rows.map(row => own.meta.columns.map(column => [row, column]));
      own.hovertext = own.hovertext.map(row => row.map(cell => {
        const [words, ...numbers] = cell.split("|");
        return own.meta.words[words].map((part, place) => part + (numbers[place] ?? "")).join("");
      }));
    }
    for (const part of ["line", "marker"])
      if (!map && own[part] && own[part].color) own[part] = { ...own[part], color: readable(own[part].color) };
    return own;
  });
  const axis = given => given && { gridcolor: line, linecolor: line, ...given };
  const layout = {
    ...chart.layout, xaxis: axis(chart.layout.xaxis), yaxis: axis(chart.layout.yaxis),
    legend: { ...chart.layout.legend, ...(map && { bgcolor: "#eeeeee", font: { color: "#111111" } }) },
    annotations: narrow.matches ? [] : chart.layout.annotations, // on a narrow screen names would cover each other
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { ...chart.layout.font, color: ink },
  };
  return [data, layout, { responsive: true, displayModeBar: false }];
}

function draw(place) {
  if (!place.chart) place.chart = JSON.parse(place.nextElementSibling.textContent);
  Plotly.react(place, ...themed(place.chart));
}

const near = new IntersectionObserver(entries => {
  for (const entry of entries)
    if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
}, { rootMargin: "400px" });
const charts = [...document.querySelectorAll(".chart")];
charts.forEach(place => near.observe(place));
dark.addEventListener("change", () => charts.filter(place => place.chart).forEach(draw));
addEventListener("beforeprint", () => charts.forEach(draw));

// The index is open where there is room beside the text.
const index = document.querySelector(".index > details");
const wide = matchMedia("(min-width: 1250px)");
if (index) {
  const fit = () => { index.open = wide.matches; };
  fit();
  wide.addEventListener("change", fit);
  index.addEventListener("click", event => { if (event.target.closest("a") && !wide.matches) index.open = false; });
}

// Claims are filtered, searched and sorted; the choice is part of the address.
const bar = document.querySelector(".toolbar");
const claims = [...document.querySelectorAll("tr.claim")];
claims.forEach((row, place) => { row.place = place; row.words = row.textContent.toLowerCase(); });
const ORDERS = {
  page: (a, b) => a.place - b.place,
  verdict: (a, b) => VERDICTS.indexOf(a.dataset.verdict) - VERDICTS.indexOf(b.dataset.verdict) || a.place - b.place,
  margin: (a, b) => Math.abs(a.dataset.margin) - Math.abs(b.dataset.margin) || a.place - b.place,
  source: (a, b) => a.dataset.source.localeCompare(b.dataset.source, undefined, { numeric: true }),
};
const VERDICTS = ["fails", "undecided", "holds", "open"];

function choose() {
  const chosen = Object.fromEntries(new FormData(bar));
  const words = chosen.search.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of claims)
    row.hidden = ["paper", "scale", "origin", "verdict", "fate"].some(name => chosen[name] && row.dataset[name] !== chosen[name])
      || !words.every(word => row.words.includes(word));
  for (const body of document.querySelectorAll(".claims tbody")) {
    const rows = claims.filter(row => row.parentNode === body);
    body.hidden = rows.length > 0 && rows.every(row => row.hidden);
    body.append(...rows.sort(ORDERS[chosen.sort] || ORDERS.page));
  }
  const narrowed = words.length > 0 || ["origin", "verdict", "fate"].some(name => chosen[name]);
  for (const figure of document.querySelectorAll("section .figure")) figure.hidden = narrowed; // the claims that are left stand together
  for (const section of document.querySelectorAll("section[data-paper]"))
    section.hidden = ["paper", "scale"].some(name => chosen[name] && section.dataset[name] !== chosen[name]);
  bar.querySelector("output").value = `${claims.filter(row => !row.hidden).length} of ${claims.length} claims`;
  const kept = new URLSearchParams(Object.entries(chosen).filter(([name, value]) => value && value !== "page"));
  history.replaceState(null, "", `${location.pathname}${kept.size ? "?" + kept : ""}${location.hash}`);
}

function show() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.matches(".figure")) target.hidden = false; // a claim leads to its figure, and the choice of claims stays
  if (bar && target.closest("[hidden]")) { bar.reset(); choose(); }
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.scrollIntoView();
}

if (bar) {
  for (const [name, value] of new URLSearchParams(location.search)) if (bar.elements[name]) bar.elements[name].value = value;
  for (const kind of ["input", "change"]) bar.addEventListener(kind, choose);
  bar.addEventListener("submit", event => event.preventDefault());
  bar.addEventListener("reset", () => setTimeout(choose));
  choose();
}
addEventListener("hashchange", show);
show();
