// The views, and the page around them. Each is a function of the parts of the address after its name.
"use strict";
const index = data.index;
const TITLES = {
  people: "People", visits: "Visits", dialogues: "Dialogues", graph: "Graph",
  experiments: "Experiments", training: "Training", beside: "Two releases",
}; // prettier-ignore

function Empty() {
  return html`<p class="loading">Reading …</p>`;
}
const Pager = ({ view, number, count }) => html`<nav class="pager" aria-label="Neighbours">
  <a href=${`#/${view}`}>All</a>
  ${number > 0 && html`<a href=${`#/${view}/${number - 1}`} aria-label="Previous">←</a>`}
  ${number + 1 < count && html`<a href=${`#/${view}/${number + 1}`} aria-label="Next">→</a>`}
  <span>${number + 1} of ${count}</span>
</nav>`;

/* ---- People ---- */
function PersonCard({ who, number, near }) {
  return html`<a class="card person" data-walk href=${`#/people/${number}`}>
    <${Avatar} who=${who} />
    <span class="about"><b>${nameOf(who)}</b><small>${near != null ? `${Math.round(100 * near)} % alike` : factsOf(who)}</small>
    <${Genres} of=${(who.likes || []).slice(0, near != null ? 2 : 4)} who=${who} /></span>
  </a>`;
}

function People({ parts }) {
  const view = useData("people");
  const [query, search] = useState("");
  const texts = useMemo(() => view && view.rows.map((p) => [p.name, p.age, p.job, p.hobby, p.persona_id, ...p.likes, p.description].join(" ").toLowerCase()), [view]);
  if (!view) return html`<${Empty} />`;
  if (parts[0]) return html`<${Person} view=${view} number=${+parts[0]} />`;
  const terms = query.toLowerCase().split(/\s+/);
  const shown = view.rows.map((who, n) => [who, n]).filter(([, n]) => terms.every((word) => texts[n].includes(word)));
  return html`<header class="lead"><h1>People who don’t exist</h1>
      <p>${many(view.total, "simulated user")}, each with tastes, habits and a life; ${view.rows.length} of them here. Choose one to see their ratings, and why.</p>
      <label class="search"><span class="hidden">Search people</span><input type="search" placeholder="Search a name, a job, a genre, a word …" value=${query} onInput=${(e) => search(e.target.value)} />
      <output>${shown.length}</output></label></header>
    <div class="cards" onKeyDown=${walk}>${shown.map(([who, n]) => html`<${PersonCard} key=${n} who=${who} number=${n} />`)}</div>
    ${!shown.length && html`<p class="loading">Nobody is like that here.</p>`}`;
}

const EFFECTS = {
  quality: "what people think of it", leniency: "the person’s leniency", agreement: "liked genres", conflict: "disliked genres",
  similarity: "its text", history: "what was rated before", word: "a manner of extremes", taste: "a taste of one’s own",
}; // prettier-ignore

function Why({ parts }) {
  const rows = Object.entries(parts).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  const most = Math.max(0.4, ...rows.map(([, v]) => Math.abs(v)));
  return html`<dl class="why">${rows.map(([name, v]) => html`<div><dt>${EFFECTS[name] || name}</dt>
    <dd class=${v < 0 ? "minus" : "plus"}><i style=${{ width: `${(50 * Math.abs(v)) / most}%` }}></i><b>${v > 0 ? "+" : "−"}${fixed(Math.abs(v), 2)}</b></dd></div>`)}</dl>`;
}

function Spread({ p, answers }) {
  const most = Math.max(...p);
  return html`<span class="spread" role="img" aria-label=${`most probable: ${answers[p.indexOf(most)]}`}>
    ${p.map((v, n) => html`<i class=${v === most ? "most" : ""} title=${`${answers[n]}: ${fixed(100 * v, 0)} %`} style=${{ height: `${4 + (96 * v) / most}%` }}></i>`)}</span>`;
}

function Person({ view, number }) {
  usePaging("people", number, view.rows.length);
  const who = view.rows[number], { answers } = view.scale, visits = useData("visits");
  const visited = visits ? visits.rows.findIndex((v) => v.who.persona_id === who.persona_id) : -1;
  const habits = ["leniency", "manner", "activity", "conformity"].filter((key) => who[key]);
  return html`<${Pager} view="people" number=${number} count=${view.rows.length} />
  <div class="sides"><section class="profile">
    <${Avatar} who=${who} big /><h1>${nameOf(who)}</h1><p class="facts">${factsOf(who)}${who.hobby ? ` · ${who.hobby}` : ""}</p>
    ${who.likes.length > 0 && html`<h3>Likes</h3><${Genres} of=${who.likes} who=${who} />`}
    ${who.dislikes.length > 0 && html`<h3>Dislikes</h3><${Genres} of=${who.dislikes} who=${who} />`}
    <p class="story">${who.description}</p>
    <dl class="habits">${habits.map((key) => html`<div><dt>${key}</dt><dd>${words(who[key])}</dd></div>`)}</dl>
    <p class="small">${who.persona_id}, ${who.origin}, written by ${who.writer === "statistical" ? "rules (no language model)" : who.writer}${who.user ? `; stands for ${who.user}` : ""}</p>
    ${visited >= 0 && html`<p><a class="button" href=${`#/visits/${visited}`}>Watch a visit →</a></p>`}
    ${who.near.length > 0 && html`<h3>Nearest people</h3><div class="near" onKeyDown=${walk}>${who.near.map(([n, alike]) => html`<${PersonCard} who=${view.rows[n]} number=${n} near=${alike} />`)}</div>`}
  </section><section>
    <h2>From best to worst, and why</h2>
    <p class="small">Of what a person of this taste is most likely to know. Rated by ${view.raters.join(", ")} on ${view.scale.name}. Bars are what moved the expected rating, in its points.</p>
    <ol class="ratings">${who.ratings.map((r) => {
      const item = index.items[r.item];
      return html`<li><${Tile} number=${r.item} small /><div class="what"><b>${item.title}</b> ${item.year && html`<small>${item.year}</small>`}<br /><${Genres} of=${item.genres} who=${who} />
        ${r.text && html`<q>${r.text}</q>`}</div>
        <div class="mark"><b>${fixed(r.expected)}</b><${Stars} value=${((r.expected - answers[0]) / (answers.at(-1) - answers[0])) * 5} /><${Spread} p=${r.p} answers=${answers} /></div>
        ${Object.keys(r.why).length > 0 && html`<${Why} parts=${r.why} />`}</li>`;
    })}</ol></section></div>`;
}

/* ---- Visits ---- */
const ENDS = { chosen: "left by choice", limit: "saw the last page", failed: "failed" };
const seen = (visit) => visit.pages.flatMap((page) => page.items);

function VisitLine({ visit, number }) {
  const items = seen(visit);
  return html`<a class="card visit" data-walk href=${`#/visits/${number}`}>
    <${Avatar} who=${visit.who} /><span class="about"><b>${nameOf(visit.who)}</b><small>${factsOf(visit.who)}</small></span>
    <span class="reel" role="img" aria-label=${`watched ${items.filter((i) => i.watched).length} of ${items.length}`}>${visit.pages.map((page) => html`<span>${page.items.map((i) => html`<i class=${i.watched ? (i.rating >= 4 ? "good" : i.rating <= 2 ? "bad" : "so") : ""}></i>`)}</span>`)}</span>
    <small class="end">${many(visit.exit_page, "page")}, ${ENDS[visit.exit_reason]}</small></a>`;
}

function Visits({ parts }) {
  const view = useData("visits");
  if (!view) return html`<${Empty} />`;
  if (parts[0]) return html`<${Visit} view=${view} number=${+parts[0]} />`;
  return html`<header class="lead"><h1>Visits, page by page</h1><p>Agents leaf through what the recommender <b>${view.run.recommender}</b> shows them, ${view.run.per_page} items a page: they watch or skip, rate, tire, and leave.</p>
    <p class="legend"><i class="good"></i> watched and liked <i class="so"></i> watched <i class="bad"></i> watched and disliked <i></i> skipped</p></header>
    <div class="lines" onKeyDown=${walk}>${view.rows.map((visit, n) => html`<${VisitLine} visit=${visit} number=${n} />`)}</div>
    <p class="small">${view.run.note} ${view.rows.length} of ${many(view.run.agents, "agent")} shown.</p>`;
}

function Frame({ page, who }) {
  return html`<section class="frame"><h3>${page.closer ? "A closer look" : `Page ${page.page}`}</h3>
    <div class="film"><div class="tiles">${page.items.map((i) => {
      const item = index.items[i.item];
      return html`<figure><${Tile} number=${i.item} dim=${!i.watched} /><figcaption>
        <b>${item.title}</b>${i.watched ? html`<${Stars} value=${i.rating} />` : html`<em>skipped</em>`}
        <p>${[i.reason, i.feeling].filter(Boolean).join(" ")}</p></figcaption></figure>`;
    })}</div></div>
    <p class="mood"><${Face} mood=${page.mood} fatigue=${page.fatigue} /><span><b>${[words(page.emotion), page.fatigue].filter(Boolean).join(", ")}</b>
      ${page.action ? html` → ${{ NEXT: "next page", PREVIOUS: "back a page", CLICK: "a closer look", EXIT: "leaves" }[page.action]}` : ` (${page.status})`}${page.reason ? html`<q>${page.reason}</q>` : ""}</span></p></section>`;
}

function Strip({ visit, pages = visit.pages }) {
  return html`<div class="strip">${pages.map((page) => html`<${Frame} key=${page.view} page=${page} who=${visit.who} />`)}</div>`;
}

function Visit({ view, number }) {
  usePaging("visits", number, view.rows.length);
  const visit = view.rows[number], items = seen(visit), watched = items.filter((i) => i.watched), people = useData("people");
  const profile = people ? people.rows.findIndex((p) => p.persona_id === visit.who.persona_id) : -1;
  const last = visit.pages.at(-1);
  return html`<${Pager} view="visits" number=${number} count=${view.rows.length} />
    <header class="who"><${Avatar} who=${visit.who} big /><div><h1>${nameOf(visit.who)}</h1><p>${factsOf(visit.who)}${visit.user_id ? `${factsOf(visit.who) ? "; " : ""}with the history of ${visit.user_id}` : ""}</p>
      <${Genres} of=${[...(visit.who.likes || []), ...(visit.who.dislikes || [])]} who=${visit.who} />
      ${profile >= 0 && html` <a class="button" href=${`#/people/${profile}`}>All about ${nameOf(visit.who).split(" ")[0]} →</a>`}</div>
      <dl class="numbers"><div><dt>watched</dt><dd>${watched.length}<small> of ${items.length}</small></dd></div><div><dt>mean rating</dt><dd>${watched.length ? fixed(sum(watched.map((i) => i.rating)) / watched.length) : "–"}</dd></div>
      <div><dt>satisfied</dt><dd>${visit.satisfaction == null ? "–" : `${Math.round(100 * visit.satisfaction)}%`}</dd></div></dl></header>
    <${Strip} visit=${visit} />
    <section class="exit"><h2>${ENDS[visit.exit_reason]} on page ${visit.exit_page}</h2>${last.reason && html`<q>${last.reason}</q>`}
      ${visit.interview != null && html`<p>Asked on the way out: <b>${visit.interview} of 10</b>.</p>`}
      ${visit.reflections.length > 0 && html`<h3>What stays</h3><ul>${visit.reflections.map((text) => html`<li>${text}</li>`)}</ul>`}
      <p class="small">Brain ${view.run.brain}, recommender ${view.run.recommender}. ${view.run.note}</p></section>`;
}

/* ---- Dialogues ---- */
function Dialogues({ parts }) {
  const view = useData("dialogues");
  if (!view) return html`<${Empty} />`;
  if (parts[0]) return html`<${Dialogue} key=${parts[0]} view=${view} number=${+parts[0]} />`;
  return html`<header class="lead"><h1>One question at a time</h1><p>An agent asks a customer what they want, then sells one product. Regret is what a better choice would have scored more, of 100.</p></header>
    <div class="cards wide" onKeyDown=${walk}>${view.rows.map((d, n) => html`<a class="card talk" data-walk href=${`#/dialogues/${n}`}>
      <span class="about"><b>${d.category}</b><small>${d.agent} asks ${many(d.questions, "question")}</small></span>
      <span class="score ${d.regret < 5 ? "good" : d.regret < d.random_regret ? "so" : "bad"}"><b>${fixed(d.regret)}</b><small>regret</small></span></a>`)}</div>
    <p class="small">Release ${view.release}.</p>`;
}

// Regret of what would be sold after each number of questions.
function regrets(dialogue) {
  const by = new Map();
  for (const t of dialogue.turns) if (t.role === "agent" && t.regret != null && (t.kind !== "ask" || !by.has(t.turn))) by.set(t.turn, t);
  return [...by.values()].sort((a, b) => a.turn - b.turn);
}

const Change = ({ by }) => (Math.abs(by) < 0.05 ? null : html`<b class=${by < 0 ? "better" : "worse"}>${by < 0 ? "▼" : "▲"} ${fixed(Math.abs(by))}</b>`);

function Dialogue({ view, number }) {
  usePaging("dialogues", number, view.rows.length);
  const d = view.rows[number], states = useMemo(() => regrets(d), [d]);
  const [at, set] = useState(d.questions);
  const [chosen, choose] = useState(null);
  const now = states.filter((t) => t.turn <= at).at(-1), done = at >= d.questions;
  const spoken = d.turns.filter((t) => (t.kind === "ask" || t.kind === "answer") && t.text != null && t.turn < at);
  const end = d.turns.find((t) => t.kind === "feedback");
  const fits = (product) => chosen && product.values[chosen.facet_id] === chosen.value;
  return html`<${Pager} view="dialogues" number=${number} count=${view.rows.length} />
    <header class="who"><${Avatar} who=${d.who} big /><div><h1>${d.category}</h1><p>${d.path}</p><p>For ${d.who.name || "a customer"}${factsOf(d.who) ? `, ${factsOf(d.who)}` : ""}; sold by the agent <b>${d.agent}</b>${d.episode > 1 ? `, who has met ${d.episode - 1} before` : ""}.</p></div>
      <dl class="numbers"><div><dt>regret</dt><dd>${fixed(d.regret)}</dd></div><div><dt>rank</dt><dd>${d.rank}<small> of ${d.shelf.length}</small></dd></div><div><dt>by chance</dt><dd>${fixed(d.random_regret)}</dd></div></dl></header>
    ${states.length > 1 && html`<${Lines} height=${170} low=${0} at=${at} x="questions" y="regret if sold now" series=${[{ points: states.map((t) => [t.turn, t.regret]) }]} marks=${[{ name: "a random product", value: d.random_regret }]} />`}
    <label class="step">After <input type="range" min="0" max=${d.questions} value=${at} onInput=${(e) => set(+e.target.value)} aria-label="Questions asked" /> <output>${many(at, "question")}</output></label>
    <div class="sides talk"><section class="chat" aria-live="polite">
      ${spoken.map((t) => {
        const after = t.kind === "answer" && states.find((s) => s.turn === t.turn + 1);
        return html`<p class=${`bubble ${t.role}`}>${t.text}
          ${t.kind === "answer" && t.value && html`<button aria-pressed=${chosen === t} onClick=${() => choose(chosen === t ? null : t)}>${t.value}</button>`}</p>
          ${after && html`<p class="now">regret if sold now ${fixed(after.regret)} <${Change} by=${after.regret - (states.find((s) => s.turn === t.turn) || after).regret} /></p>`}`;
      })}
      ${done && html`<p class="bubble agent sold">I recommend <b>${(d.shelf.find((p) => p.id === d.item_id) || {}).title}</b>.</p>
        ${end && end.text && html`<p class="bubble customer">${end.text}</p>`}<p class="now">regret ${fixed(d.regret)}, ${d.stars} of 5 stars</p>`}
      ${!spoken.length && !done && html`<p class="loading">Nothing is asked yet.</p>`}
    </section><section class="shelf"><h3>The shelf, as this customer scores it</h3><p class="small">The agent never sees these scores.</p>
      <ol>${d.shelf.map((p) => html`<li class=${`${now && now.item_id === p.id ? "pick" : ""} ${fits(p) ? "fits" : ""}`}>
        <span class="bar"><i style=${{ width: `${p.score}%` }}></i></span><b>${fixed(p.score, 0)}</b><span>${cut(p.title, 90)}<small>${[p.price && `$${fixed(p.price, 2)}`, p.rating && `★ ${fixed(p.rating)}`].filter(Boolean).join(" · ")}</small></span>
        ${now && now.item_id === p.id && html`<em>${done ? "sold" : "would sell"}</em>`}</li>`)}</ol></section></div>`;
}

/* ---- The page ---- */
function Home() {
  const visits = useData("visits"), people = useData("people");
  const best = visits && [...visits.rows].sort((a, b) => sum(seen(b).map((i) => (i.watched ? 1 : 0))) * b.pages.length - sum(seen(a).map((i) => (i.watched ? 1 : 0))) * a.pages.length)[0];
  const count = (name) => (index.tables.find((t) => t.table === name) || {}).rows;
  const stats = [["personas", "simulated people"], ["items", index.domain], ["preference_scores", "ratings, each with a distribution"], ["interactions", "ratings by people"]].filter(([name]) => count(name));
  return html`<header class="hero"><p class="kicker">Understudy · ${index.release}</p><h1>Before people see it,<br />their understudies do.</h1>
      <p>Simulated users for recommender systems, as versioned datasets. These belong to the world <b>${index.world}</b>.</p>
      <dl class="numbers">${stats.map(([name, title]) => html`<div><dd>${count(name).toLocaleString("en")}</dd><dt>${title}</dt></div>`)}</dl></header>
    ${best && html`<section><h2>${nameOf(best.who)} opens the app</h2><p>${[factsOf(best.who), (best.who.likes || []).length && `likes ${best.who.likes.join(", ")}`].filter(Boolean).join("; ")}</p><${Strip} visit=${best} pages=${best.pages.slice(0, 1)} />
      <p><a class="button" href=${`#/visits/${visits.rows.indexOf(best)}`}>The whole visit →</a></p></section>`}
    ${people && html`<section><h2>Some of the cast</h2><div class="cards" onKeyDown=${walk}>${people.rows.map((who, n) => [who, n]).filter((_, n) => n % Math.ceil(people.rows.length / 6) === 0).slice(0, 6).map(([who, n]) => html`<${PersonCard} who=${who} number=${n} />`)}</div></section>`}
    ${Object.keys(index.absent).length > 0 && html`<section><h2>Not shown here</h2><dl class="absent">${Object.entries(index.absent).map(([part, reason]) => html`<dt>${TITLES[part] || part}</dt><dd>${reason}</dd>`)}</dl></section>`}`;
}

const VIEW = {
  people: People, visits: Visits, dialogues: Dialogues, graph: Graph, experiments: Experiments,
  training: Training, beside: Beside,
}; // prettier-ignore
function App() {
  const [name, ...parts] = useAddress();
  const shown = Object.keys(index.views).filter((view) => VIEW[view]);
  const View = (shown.includes(name) && VIEW[name]) || Home;
  useEffect(() => {
    document.title = `${TITLES[name] || index.name} · Understudy`;
    const tab = document.querySelector(".menu [aria-current]");
    if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - (innerWidth - tab.offsetWidth) / 2;
  }, [name]);
  return html`<a class="skip" href="#main" onClick=${(e) => (e.preventDefault(), document.querySelector("main").focus())}>Skip to the content</a>
    <nav class="menu" aria-label="Views" onKeyDown=${walk}><a class="brand" data-walk href="#/">Under<i>study</i></a>${shown.map((view) => html`<a data-walk href=${`#/${view}`} aria-current=${view === name ? "page" : null}>${TITLES[view]}</a>`)}</nav>
    <main id="main" tabindex="-1"><${View} key=${name} parts=${parts.filter((p) => /^\d+$/.test(p))} /></main>
    <footer><p>Release <b>${index.release}</b>, ${index.created_at.slice(0, 10)}, world ${index.world}. Names of people are made up. Made with <code>understudy explore</code>.</p></footer>`;
}
render(html`<${App} />`, document.getElementById("app"));
