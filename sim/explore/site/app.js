// Data, addresses and the parts that views share. Text of data is never HTML: htm writes text nodes.
"use strict";
const { html, render, useEffect, useMemo, useRef, useState } = htmPreact;

// Data by name. Pages from disk can't read JSON, so each file is a script that calls understudy().
const data = {};
const waiting = {};
function understudy(name, value) {
  data[name] = value;
  (waiting[name] || []).forEach((resolve) => resolve(value));
}
function load(name) {
  if (data[name] || !(name in data.index.views)) return Promise.resolve(data[name]);
  return new Promise((resolve) => {
    if (waiting[name]) return waiting[name].push(resolve);
    waiting[name] = [resolve];
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    document.head.append(script);
  });
}
function useData(name) {
  const [value, set] = useState(data[name]);
  useEffect(() => void load(name).then(set), [name]);
  return value;
}

// Addresses are #/view/number.
const address = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
function useAddress() {
  const [parts, set] = useState(address);
  useEffect(() => {
    const change = () => (set(address()), scrollTo(0, 0));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return parts;
}

// Arrow keys move the focus among the links of a list; those of a page go to its neighbours.
function walk(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const links = [...event.currentTarget.querySelectorAll("[data-walk]")];
  const next = links[links.indexOf(document.activeElement) + step];
  if (next && links.includes(document.activeElement)) (next.focus(), event.preventDefault());
}
function usePaging(view, number, count) {
  useEffect(() => {
    const turn = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || /INPUT|SELECT/.test(event.target.tagName) || event.defaultPrevented) return;
      if (number + step >= 0 && number + step < count) location.hash = `#/${view}/${number + step}`;
    };
    addEventListener("keydown", turn);
    return () => removeEventListener("keydown", turn);
  }, [view, number, count]);
}

const fixed = (value, digits = 1) => (value == null ? "–" : value.toFixed(digits));
const many = (count, word) => `${count.toLocaleString("en")} ${count === 1 ? word : word + "s"}`;
const sum = (values) => values.reduce((a, b) => a + b, 0);
const cut = (text, length) => (text.length > length ? text.slice(0, length - 1).trimEnd() + "…" : text);
const words = (text) => (text ? text.toLowerCase().replaceAll("_", " ") : "");

// Hues of genres in the order of films' catalogues; others get one by their letters.
const HUES = {
  Action: 14, Adventure: 32, Animation: 188, Children: 52, Comedy: 44, Crime: 2, Documentary: 96,
  Drama: 262, Fantasy: 288, "Film-Noir": 225, Horror: 350, IMAX: 210, Musical: 318, Mystery: 240,
  Romance: 332, "Sci-Fi": 202, Thriller: 216, War: 82, Western: 24,
}; // prettier-ignore
const hue = (word) => HUES[word] ?? [...word].reduce((h, c) => (h * 31 + c.codePointAt(0)) % 360, 7);

function Tile({ number, item = data.index.items[number], dim, small }) {
  const [first, second] = [item.genres[0] || item.title, item.genres[1] || item.genres[0] || item.id];
  const colours = { "--a": hue(first), "--b": hue(second), "--x": hue(item.id) % 90 };
  return html`<span class=${`tile ${dim ? "dim" : ""} ${small ? "small" : ""}`} style=${colours}>
    ${item.poster
      ? html`<img src=${item.poster} alt="" loading="lazy" />`
      : html`<b style=${{ fontSize: item.title.length > 26 ? ".74em" : null }}>${cut(item.title, 58)}</b>
          <i>${[item.year, item.genres[0]].filter(Boolean).join(" · ")}</i>`}
  </span>`;
}

function Avatar({ who, big }) {
  const tastes = who.likes && who.likes.length ? who.likes : [who.persona_id || "?"], turn = hue(who.persona_id || "?");
  const colours = { "--a": hue(tastes[turn % tastes.length]), "--b": turn };
  const letters = who.name ? who.name.split(/\s+/).map((part) => part[0]).slice(0, 2).join("") : numberOf(who);
  return html`<span class=${`avatar ${big ? "big" : ""}`} style=${colours} aria-hidden="true">${letters}</span>`;
}
const numberOf = (who) => (/\d+$/.exec(who.persona_id) || [0])[0] * 1;
const nameOf = (who) => who.name || `Person ${numberOf(who)}`;
const factsOf = (who) => [who.age, who.gender, who.job].filter((fact) => fact != null).join(", ");

const Genres = ({ of, who = {} }) => html`<span class="chips">${of.map((genre) => {
  const kind = (who.likes || []).includes(genre) ? "liked" : (who.dislikes || []).includes(genre) ? "disliked" : "";
  return html`<span class=${`chip ${kind}`}>${genre}</span>`;
})}</span>`;

function Stars({ value, of = 5 }) {
  if (value == null) return null;
  return html`<span class="stars" role="img" aria-label=${`${fixed(value)} of ${of}`}>
    <span>${"★".repeat(of)}</span><span style=${{ width: `${(100 * value) / of}%` }}>${"★".repeat(of)}</span>
  </span>`;
}

// A face: the mouth says the mood, the lids the fatigue.
function Face({ mood, fatigue }) {
  const mouth = mood === "positive" ? 5 : mood === "negative" ? -4 : 0;
  const lid = { "very tired": 1.1, "a little tired": 2 }[fatigue] || 3;
  const label = [mood, fatigue].filter(Boolean).join(", ") || "no mood";
  return html`<svg class=${`face ${mood || ""}`} viewBox="0 0 40 40" role="img" aria-label=${label}>
    <title>${label}</title><circle cx="20" cy="20" r="18" />
    <ellipse cx="13.5" cy="16" rx="2.4" ry=${lid} /><ellipse cx="26.5" cy="16" rx="2.4" ry=${lid} />
    <path d=${`M12 ${26 - mouth / 3} Q20 ${26 + mouth} 28 ${26 - mouth / 3}`} />
  </svg>`;
}

// Lines over a common axis: series are {name, points: [[x, y]], dashed}, marks horizontal lines.
function Lines({ series, marks = [], x, y, at, height = 260, low = null }) {
  const box = useRef(), [width, set] = useState(640);
  useEffect(() => {
    const fit = () => box.current && set(Math.max(260, box.current.clientWidth));
    fit();
    addEventListener("resize", fit);
    return () => removeEventListener("resize", fit);
  }, []);
  const points = series.flatMap((s) => s.points);
  const ys = [...points.map((p) => p[1]), ...marks.map((m) => m.value), ...(low == null ? [] : [low])];
  const xs = points.map((p) => p[0]);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const pad = (y1 - y0 || 1) * 0.08, bottom = low ?? y0 - pad, top = y1 + pad;
  const px = (v) => 46 + ((v - x0) / (x1 - x0 || 1)) * (width - 62);
  const py = (v) => height - 34 - ((v - bottom) / (top - bottom)) * (height - 50);
  // Labels of marks that are near each other stand below one another.
  const labels = [...marks].sort((a, b) => b.value - a.value).map((m) => ({ ...m, y: py(m.value) - 5 }));
  labels.forEach((m, n) => n && (m.y = Math.max(m.y, labels[n - 1].y + 13)));
  const ticks = [0, 1, 2, 3].map((n) => bottom + ((top - bottom) * n) / 3);
  return html`<div class="chart" ref=${box}><svg viewBox=${`0 0 ${width} ${height}`} height=${height} role="img" aria-label=${`${y} by ${x}`}>
    ${ticks.map((v) => html`<g class="tick"><line x1="46" x2=${width - 16} y1=${py(v)} y2=${py(v)} /><text x="40" y=${py(v) + 4} text-anchor="end">${fixed(v, top - bottom < 4 ? 2 : 0)}</text></g>`)}
    ${labels.map((m) => html`<g class="mark"><line x1="46" x2=${width - 16} y1=${py(m.value)} y2=${py(m.value)} /><text x=${width - 18} y=${m.y} text-anchor="end">${m.name}</text></g>`)}
    ${series.map((s, n) => html`<g class=${`line s${n % 6}`}><polyline points=${s.points.map((p) => `${px(p[0])},${py(p[1])}`).join(" ")} />
      ${s.points.length < 40 && s.points.map((p) => html`<circle cx=${px(p[0])} cy=${py(p[1])} r=${p[0] === at ? 6 : 3} />`)}</g>`)}
    <text class="axis" x="46" y=${height - 6}>${x0.toLocaleString("en")}</text>
    <text class="axis" x=${width - 16} y=${height - 6} text-anchor="end">${x1.toLocaleString("en")} ${x}</text>
    <text class="axis" x="46" y="12">${y}</text>
  </svg></div>`;
}
