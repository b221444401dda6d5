// The graph, and results: experiments, training, two releases.
"use strict";

/* ---- Graph ---- */
function Graph({ parts }) {
  const view = useData("graph");
  if (!view) return html`<p class="loading">Reading …</p>`;
  const { items } = data.index, at = view.rows.findIndex((row) => row.item === +(parts[0] ?? -1));
  // At first the item with the most to see between it and its neighbours.
  const between = (row) => sum(row.near.map((n) => n.through.length));
  const row = view.rows[at] || view.rows.reduce((a, b) => (between(b) > between(a) ? b : a));
  const byTitle = view.rows.map((r) => r.item).sort((a, b) => items[a].title.localeCompare(items[b].title));
  return html`<header class="lead"><h1>What is near, and why</h1><p>Simulated users remember by this graph: two items are near when many paths join them, through what they are and through the people who rated both.</p>
      <label>Around <select value=${row.item} onChange=${(e) => (location.hash = `#/graph/${e.target.value}`)}>${byTitle.map((n) => html`<option value=${n}>${items[n].title}</option>`)}</select></label></header>
    <${Paths} key=${row.item} row=${row} view=${view} />`;
}

function Paths({ row, view }) {
  const first = row.near.reduce((best, n, k, all) => (n.through.length > all[best].through.length ? k : best), 0);
  const [chosen, choose] = useState(first), box = useRef(), [width, set] = useState(1100);
  useEffect(() => {
    const fit = () => box.current && set(box.current.clientWidth);
    fit();
    addEventListener("resize", fit);
    return () => removeEventListener("resize", fit);
  }, []);
  const { items } = data.index, centres = new Set(view.rows.map((r) => r.item));
  const nodes = [...new Set(row.near.flatMap((n) => n.through))].sort((a, b) => (view.nodes[a].kind + view.nodes[a].label).localeCompare(view.nodes[b].kind + view.nodes[b].label));
  if (row.near.some((n) => n.people)) nodes.push("people");
  const narrow = width < 620, step = narrow ? 60 : 58, middle = Math.max(nodes.length, 1);
  const height = Math.max(row.near.length * step, middle * (narrow ? 30 : 34), 220) + 20;
  const place = (n, count) => ((n + 0.5) * height) / count;
  const x = narrow ? [64, width * 0.42, width * 0.62] : [170, width * 0.44, width * 0.64];
  const yNode = (node) => place(nodes.indexOf(node), middle);
  const link = (x0, y0, x1, y1) => `M${x0} ${y0} C${(x0 + x1) / 2} ${y0} ${(x0 + x1) / 2} ${y1} ${x1} ${y1}`;
  const now = row.near[chosen] || { through: [], paths: [] };
  const on = (node) => (node === "people" ? now.people > 0 : now.through.includes(node));
  // What is highlighted is drawn last, over the others.
  const last = (all, chosen) => [...all].sort((a, b) => chosen(a) - chosen(b));
  const half = narrow ? 46 : 66, most = Math.max(...row.near.map((n) => n.people), 1);
  const through = (n) => [...n.through, ...(n.people ? ["people"] : [])];
  return html`<div class="graph" ref=${box} style=${{ height: `${height}px` }}>
      <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} aria-hidden="true">
        ${last(nodes, on).map((node) => html`<path class=${on(node) ? "on" : ""} d=${link(x[0], height / 2, x[1] - half, yNode(node))} />`)}
        ${last(row.near, (n) => n === now).map((n) => through(n).map((node) => html`<path class=${n === now ? "on" : ""} style=${{ strokeWidth: node === "people" ? `${1 + (5 * n.people) / most}px` : null }} d=${link(x[1] + half, yNode(node), x[2], place(row.near.indexOf(n), row.near.length))} />`))}
      </svg>
      <span class="centre" style=${{ top: `${height / 2}px` }}><${Tile} number=${row.item} /></span>
      ${nodes.map((node) => html`<span class=${`node ${node === "people" ? "people" : ""} ${on(node) ? "on" : ""}`} style=${{ left: `${x[1]}px`, top: `${yNode(node)}px`, width: `${2 * half}px` }}
        title=${node === "people" ? "people who rated both" : view.nodes[node].kind}>${node === "people" ? `${now.people} ${narrow ? "people" : "rated both"}` : cut(view.nodes[node].label, narrow ? 14 : 22)}</span>`)}
      <div role="listbox" aria-label="Nearest items" onKeyDown=${walk}>${row.near.map((n, k) => html`<button role="option" data-walk aria-selected=${k === chosen} class="neighbour" style=${{ left: `${x[2]}px`, top: `${place(k, row.near.length)}px` }}
        onClick=${() => choose(k)} onFocus=${() => choose(k)} onMouseEnter=${() => choose(k)}><b>${cut(items[n.item].title, narrow ? 28 : 46)}</b><small>${fixed(n.score, 3)}${n.rating != null ? ` · ★ ${fixed(n.rating)}` : ""}</small></button>`)}</div>
    </div>
    ${row.near.length > 0 && html`<section class="because" aria-live="polite"><h2>${items[row.item].title} → ${items[now.item].title}</h2>
      <p class="small">Score ${fixed(now.score, 3)}, by kind of path${now.cosine ? " and by text" : ""}. Ratings are means on ${view.scale}.</p>
      <dl class="shares">${[...now.paths, ...(now.cosine ? [["text", now.cosine]] : [])].map(([name, share]) => html`<div><dt>${name}</dt><dd><i style=${{ "--of": Math.min(1, Math.abs(share) / (now.score || 1)) }}></i><span>${fixed(share, 3)}</span></dd></div>`)}</dl>
      ${centres.has(now.item) && html`<a class="button" href=${`#/graph/${now.item}`}>Go there →</a>`}</section>`}`;
}

/* ---- Experiments ---- */
// The words of a verdict before its reason, and the colour they get.
const wordsOf = (e) => (e.verdict && !/^none/i.test(e.verdict) ? e.verdict.split(/[:.;,]| beyond | for | than /)[0] : "Not tested");
const verdictOf = (e) => ({ supported: "good", cheaper: "good", contradicted: "bad", dearer: "bad", "not supported": "bad", "not found": "so" })[wordsOf(e).toLowerCase()] || "";

function Whiskers({ values }) {
  const wide = values.map((v) => (Array.isArray(v.value) ? v.value : [v.value, v.value, v.value])).map(([m, l, h]) => [m, l ?? m, h ?? m]);
  const low = Math.min(0, ...wide.map((w) => w[1])), high = Math.max(...wide.map((w) => w[2]), low + 1e-9);
  const at = (v) => `${(100 * (v - low)) / (high - low)}%`;
  return html`<div class="whiskers">${values.map((v, n) => html`<div class=${v.source}><span>${v.title} <small>${v.source}${v.n ? `, n ${v.n.toLocaleString("en")}` : ""}</small></span>
    <span class="axis"><i style=${{ left: at(wide[n][1]), width: `calc(${at(wide[n][2])} - ${at(wide[n][1])})` }}></i><b style=${{ left: at(wide[n][0]) }}></b></span><output>${fixed(wide[n][0], 3)}</output></div>`)}</div>`;
}

function Experiments() {
  const view = useData("experiments");
  if (!view) return html`<p class="loading">Reading …</p>`;
  const counts = new Map();
  for (const e of view.rows) counts.set(wordsOf(e), [...(counts.get(wordsOf(e)) || []), e]);
  return html`<header class="lead"><h1>Claims, tested</h1><p>What papers say of simulated users, what came out here, and a verdict. </p>
      <p>${[...counts].map(([word, rows]) => html`<span class=${`verdict ${verdictOf(rows[0])}`}>${rows.length} ${word.toLowerCase()}</span> `)}</p></header>
    ${view.rows.map((e) => html`<details class="claim"><summary><span class="claims"><b>${e.claim || e.question}</b><small>${e.paper || e.name}</small></span>
      <span class="ours">${(e.measured || e.too_few || "").replaceAll("`", "")}</span><span class=${`verdict ${verdictOf(e)}`} title=${e.verdict || ""}>${wordsOf(e)}</span></summary>
      <p><b>${e.question}</b> ${e.verdict}</p>${e.values.length > 0 && html`<h3>${e.figure}</h3><${Whiskers} values=${[...e.values.filter((v) => v.source !== "paper").slice(0, 16), ...e.values.filter((v) => v.source === "paper").slice(0, 8)]} />`}</details>`)}`;
}

/* ---- Training ---- */
const CURVES = { average_reward: "average reward", "map@10": "MAP@10", "personalization@10": "personalisation" };

function Training() {
  const view = useData("training");
  if (!view) return html`<p class="loading">Reading …</p>`;
  return html`<header class="lead"><h1>Policies learn from them</h1><p>A recommender that is trained on simulated users, beside those that are not.</p></header>
    ${view.rows.map((run) => {
      const marks = run.table.filter((row) => !row.trained).map((row) => ({ name: row.recommender, value: row.average_reward.value }));
      // One scale: 0 is random, 1 the oracle.
      const reward = (name) => (run.table.find((row) => row.recommender === name) || { average_reward: {} }).average_reward.value;
      const [low, high] = [reward("random") ?? 0, reward("oracle") ?? Math.max(...run.table.map((row) => row.average_reward.value))];
      const share = (row) => (row.average_reward.value - low) / (high - low || 1);
      return html`<section><h2>${run.algo}, ${run.steps.toLocaleString("en")} steps</h2><p class="small">Rater ${run.rater}, rewards on ${run.scale}, ${many(run.users, "user")}, ${many(run.seeds.length, "seed")}. ${run.note}</p>
        <div class="charts">${Object.keys(CURVES).filter((key) => run.curves.some((c) => c.points.some((p) => p[key] != null))).map((key) => html`<${Lines} x="steps" y=${CURVES[key]}
          series=${run.curves.map((c) => ({ points: c.points.filter((p) => p[key] != null).map((p) => [p.steps, p[key]]) }))} marks=${key === "average_reward" ? marks : []} />`)}</div>
        <p class="small">Average reward from 0, random, to 1, the oracle that knows every rating; in brackets 95 % intervals of the reward.</p>
        <dl class="shares">${[...run.table].sort((a, b) => b.average_reward.value - a.average_reward.value).map((row) => html`<div class=${row.trained ? "trained" : ""}><dt>${row.recommender}</dt><dd><i style=${{ "--of": Math.min(1, Math.max(0.004, share(row))) }}></i><span>${fixed(share(row), 2)} <small>${fixed(row.average_reward.value, 2)} [${fixed(row.average_reward.low, 2)}, ${fixed(row.average_reward.high, 2)}]</small></span></dd></div>`)}</dl></section>`;
    })}`;
}

/* ---- Two releases ---- */
function Pairs({ shift }) {
  const most = Math.max(...shift.before, ...shift.after, 1e-9);
  return html`<figure class="pairs"><figcaption><b>${shift.column}</b><small>shift ${fixed(shift.psi, 3)}${shift.mean_before != null ? `, mean ${fixed(shift.mean_before, 2)} → ${fixed(shift.mean_after, 2)}` : ""}</small></figcaption>
    <div>${shift.bins.map((bin, n) => html`<span title=${`${bin}: ${fixed(100 * shift.before[n], 1)} % → ${fixed(100 * shift.after[n], 1)} %`}><i style=${{ height: `${(100 * shift.before[n]) / most}%` }}></i><i style=${{ height: `${(100 * shift.after[n]) / most}%` }}></i></span>`)}</div>
    <small>${shift.bins[0]} … ${shift.bins.at(-1)}</small></figure>`;
}

function Beside() {
  const view = useData("beside");
  if (!view) return html`<p class="loading">Reading …</p>`;
  const changed = view.rows.filter((t) => t.status !== "same"), same = view.rows.filter((t) => t.status === "same");
  return html`<header class="lead"><h1>Two releases, side by side</h1><p><b class="before">${view.a}</b> and <b class="after">${view.b}</b>: ${view.same ? "all tables are the very same." : `${changed.length} of ${many(view.rows.length, "table")} differ.`}</p></header>
    ${changed.length > 0 && html`<div class="wide"><table><thead><tr><th>table</th><th></th><th>rows</th><th>added</th><th>removed</th><th>changed</th></tr></thead><tbody>${changed.map((t) => html`<tr class=${t.status}><td>${t.table}</td><td>${t.status}</td><td>${t.rows_before.toLocaleString("en")}${t.rows_after !== t.rows_before ? ` → ${t.rows_after.toLocaleString("en")}` : ""}</td>
      ${[t.rows_added, t.rows_removed, t.rows_changed].map((n) => html`<td>${t.status === "changed" && n != null ? n.toLocaleString("en") : ""}</td>`)}</tr>`)}</tbody></table></div>`}
    ${same.length > 0 && html`<p class="small">The same in both: ${same.map((t) => t.table).join(", ")}.</p>`}
    ${view.people.length > 0 && html`<section><h2>The same people</h2><p class="small">Those whose expected ratings moved most, and the items that did.</p>
      <div class="cards">${view.people.map((who) => html`<div class="card moved"><b>${nameOf(who)}</b><small>mean of ${who.ratings.toLocaleString("en")}: <span class="before">${fixed(who.expected, 2)}</span> → <span class="after">${fixed(who.expected_after, 2)}</span></small>
        <ul>${who.items.map((i) => html`<li><span>${i.title}</span><span class="before">${fixed(i.before)}</span> → <span class="after">${fixed(i.after)}</span></li>`)}</ul></div>`)}</div></section>`}
    ${changed.map((t) => html`<section><h2>${t.table}</h2>${t.causes.map((cause) => html`<p>Because ${cause}.</p>`)}
      ${["added", "removed", "retyped"].filter((k) => t[`columns_${k}`].length).map((k) => html`<p>Columns ${k}: ${t[`columns_${k}`].join(", ")}</p>`)}
      <div class="charts small">${t.shifts.filter((s) => s.bins.length).slice(0, 8).map((s) => html`<${Pairs} shift=${s} />`)}</div></section>`)}`;
}
