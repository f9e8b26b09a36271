// Sparklines of what went on lately, and what the process that shows the page counts.

import { byId, el, keyed, setAttribute, setText, show, svg } from "./dom.js";
import { POINTS } from "./store.js";
import { count } from "./text.js";

const HEIGHT = 30;

const SPARKS = [
  { key: "waiting", title: "Waiting in queues", look: "line" },
  { key: "granted", title: "Granted, handed over", look: "line" },
  { key: "expired", title: "Expired, not released", look: "loss" },
  { key: "managerWaiting", title: "This process: waiting", look: "line", manager: true },
  { key: "managerLost", title: "This process: lost", look: "loss", manager: true },
];

const COUNTERS = ["held", "waiting", "acquired", "refused", "gave_up", "extended", "lost"];

export function renderSparks({ head, series }) {
  const shown = SPARKS.filter(({ manager }) => !manager || head.manager !== null);
  keyed(
    byId("sparks"),
    shown,
    ({ key }) => key,
    newSpark,
    (view, { key, look }) => update(view, series[key], look, head.interval),
  );
  show(byId("manager"), head.manager !== null);
  if (head.manager === null) return;
  const counters = COUNTERS.map((name) => `${name.replace("_", " ")} ${count(head.manager[name])}`);
  setText(byId("manager"), `This process since its start: ${counters.join(", ")}`);
}

function newSpark({ key, title, look }) {
  const number = el("strong", { class: "spark-now", "data-field": "now" });
  const most = el("span", { class: "spark-most", "data-field": "most" });
  const path = svg("path", { class: "spark-line", "vector-effect": "non-scaling-stroke" });
  const area = svg("path", { class: "spark-area" });
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${POINTS - 1} ${HEIGHT}`,
      preserveAspectRatio: "none",
      class: "spark-picture",
      role: "img",
    },
    area,
    path,
  );
  const head = el("p", { class: "spark-head" }, el("span", { class: "spark-title" }, title), number);
  const since = el("span", { "data-field": "since" });
  const axis = el("p", { class: "spark-axis" }, since, el("span", {}, "now"));
  const node = el("li", { class: `spark ${look}`, "data-spark": key }, head, picture, axis, most);
  return { node, number, most, since, path, area, picture, title };
}

function update(view, points, look, interval) {
  setText(view.since, `−${span((POINTS - 1) * interval)}`);
  const last = points.at(-1) ?? null;
  const most = Math.max(0, ...points);
  setText(view.number, last === null ? "–" : count(last));
  setText(view.most, most ? `at most ${count(most)}` : "none recently");
  setAttribute(view.path, "data-level", look === "loss" && most > 0 ? "warning" : null);
  setAttribute(view.number, "data-level", look === "loss" && last > 0 ? "warning" : null);
  setAttribute(view.picture, "aria-label", `${view.title}: now ${last ?? "unknown"}, at most ${most}`);
  setAttribute(view.path, "d", look === "loss" ? bars(points, most) : line(points, most));
  setAttribute(view.area, "d", look === "loss" ? "" : areas(points, most));
}

const span = (seconds) =>
  seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;

const y = (value, most) => (HEIGHT - 1 - (value / Math.max(1, most)) * (HEIGHT - 3)).toFixed(1);
const x = (place, points) => POINTS - points.length + place; // the newest stands at the right

// Lines between gaps, as lists of places.
function runs(points) {
  const found = [];
  let run = [];
  points.forEach((value, place) => {
    if (value !== null) run.push(place);
    else if (run.length) found.push(run.splice(0));
  });
  if (run.length) found.push(run);
  return found;
}

const stroke = (run, points, most) =>
  run.map((place) => `${x(place, points)} ${y(points[place], most)}`).join("L");

// The last bit has a single point seen, too.
const line = (points, most) =>
  runs(points)
    .map((run) => `M${stroke(run, points, most)}h.01`)
    .join("");

function areas(points, most) {
  const closed = (run) => {
    const [from, to] = [x(run[0], points), x(run.at(-1), points)];
    return `M${from} ${HEIGHT}L${stroke(run, points, most)}L${to} ${HEIGHT}Z`;
  };
  return runs(points).map(closed).join("");
}

// Losses are single events: a bar for each look that saw some, on a base line.
function bars(points, most) {
  const up = (value, place) => (value ? `M${x(place, points)} ${HEIGHT - 1}V${y(value, most)}` : "");
  return `M0 ${HEIGHT - 1}H${POINTS - 1}${points.map(up).join("")}`;
}
