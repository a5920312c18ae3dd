// Shows what the page holds. Names of groups, clients and topics were chosen by strangers: they become text nodes,
// never markup.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(byId(id).textContent);
  const data = read("data");
  const charts = read("charts");

  // -- small things -------------------------------------------------------------------------------

  const isNone = (value) => value === null || value === undefined;

  /** Makes an element: make("a.soft", { href: "#x", click: act }, "text", child, [children]). */
  function make(name, ...children) {
    const [tag, ...classes] = name.split(".");
    const element = document.createElement(tag);
    if (classes.length) element.className = classes.join(" ");
    const attributes = children[0]?.constructor === Object ? children.shift() : {};
    for (const [key, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(key, value);
      else if (!isNone(value) && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => !isNone(child)));
    return element;
  }
  function svg(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  const button = (text, click, attributes) => make("button", { type: "button", click, ...attributes }, text);

  function unpacked(packed) {
    const names = Object.keys(packed.columns);
    const columns = names.map((name) => {
      const column = packed.columns[name];
      if (column === null) return new Array(packed.count).fill(null);
      if (Array.isArray(column)) return column;
      const value = "texts" in column ? (at) => column.texts[at] : (by) => column.least + by;
      return (column.at || column.by).map((given) => (given === null ? null : value(given)));
    });
    return Array.from({ length: packed.count }, (_, i) =>
      Object.fromEntries(names.map((name, n) => [name, columns[n][i]])),
    );
  }

  /** Shows a name with its control characters, and those that turn the direction of text, in sight. */
  const printable = (text) =>
    String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  const nameOf = (text) => make("bdi", text === "" ? "(empty id)" : printable(text));
  // One formatter for all: toLocaleString makes one for each call, a quarter of the time of a long table.
  const grouped = new Intl.NumberFormat("en-US");
  const number = (value) => (isNone(value) ? "" : grouped.format(value));
  // Of some lags nothing is known but that they are no more.
  const atMost = (isBound) => (isBound ? "at most that" : null);
  const behind = (lag, isBound) => (isBound ? `at most ${number(lag)}` : number(lag));
  const many = (n, one, more) => `${number(n)} ${n === 1 ? one : more || `${one}s`}`;
  const spoken = (name) => String(name).replaceAll("_", " ");
  const natural = new Intl.Collator("en", { numeric: true }).compare;

  /** Counts rows by a key, the most frequent first: [[key, count]]. */
  function tally(rows, key, weight = () => 1) {
    const sums = new Map();
    for (const row of rows) sums.set(key(row), (sums.get(key(row)) || 0) + weight(row));
    return [...sums].sort((a, b) => b[1] - a[1]);
  }

  function duration(ms) {
    if (isNone(ms)) return "";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 120e3) return `${(ms / 1000).toFixed(ms < 10e3 ? 1 : 0)} s`;
    if (ms < 7200e3) return `${Math.round(ms / 60e3)} min`;
    if (ms < 172800e3) return `${(ms / 3600e3).toFixed(1)} h`;
    return `${(ms / 86400e3).toFixed(1)} d`;
  }

  /** Says what generations cost, as far as is known: "; cost 14 consumer-minutes (at least 12)". */
  function cost(generations) {
    const sum = (name) => generations.reduce((all, g) => all + (g[name] || 0), 0);
    const [ms, least] = [sum("cost_member_ms"), sum("cost_member_ms_min")];
    if (!ms) return "";
    const [size, unit] = ms < 120e3 ? [1e3, "seconds"] : ms < 7200e3 ? [60e3, "minutes"] : [3600e3, "hours"];
    const inUnits = (n) => number(Math.round((n / size) * 10) / 10);
    return `; cost ${inUnits(ms)} consumer-${unit}${least < ms ? ` (at least ${inUnits(least)})` : ""}`;
  }

  // -- times --------------------------------------------------------------------------------------

  const localZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  let zone = "utc";
  const zoneName = () => (zone === "utc" ? "UTC" : localZone);
  const inUtc = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 23);

  /** Gives a time in the zone that is chosen, with milliseconds if it is exact. */
  function clock(ms, isExact = false) {
    if (isNone(ms)) return "";
    return inUtc(zone === "utc" ? ms : ms - new Date(ms).getTimezoneOffset() * 60e3).slice(0, isExact ? 23 : 19);
  }

  function time(ms, isExact = false) {
    if (isNone(ms)) return "";
    return make(
      "time",
      { datetime: new Date(ms).toISOString(), "data-ms": ms, "data-exact": isExact },
      clock(ms, isExact),
    );
  }
  const zoneLabel = () => make("span.zone", zoneName());
  const zoned = (ms) => (isNone(ms) ? "" : [time(ms), " ", zoneLabel()]);

  function showTimes() {
    for (const element of document.querySelectorAll("time[data-ms]"))
      element.textContent = clock(Number(element.dataset.ms), "exact" in element.dataset);
    for (const element of document.querySelectorAll(".zone")) element.textContent = zoneName();
  }

  // -- colours ------------------------------------------------------------------------------------

  const probe = make("span", { hidden: true });
  document.body.append(probe);
  let known = {};
  /** Gives a colour of the styles in the theme that is shown, as a canvas takes it. */
  function colour(style) {
    if (!(style in known)) {
      probe.style.color = style.includes("(") ? style : `var(--${style})`;
      known[style] = getComputedStyle(probe).color;
    }
    return known[style];
  }
  const PALETTE = "#4f7bd9 #e8a317 #ee6c59 #35b0a0 #a463f2 #5aa845 #e377b4 #8db4f4 #a9754f #c2b33b".split(" ");
  const REST = "#98a0ad";
  const PLAIN = "transparent";
  // Where colours are used up, they come again with a stripe: 40 looks that differ.
  const LOOKS = [() => PLAIN, () => "#ffffff", () => "#10141b", (at) => PALETTE[(at + 5) % PALETTE.length]].flatMap(
    (stripe) => PALETTE.map((shade, at) => ({ colour: shade, stripe: stripe(at) })),
  );
  const OTHERS = { colour: REST, stripe: PLAIN };
  const STATES = {
    Stable: "stable",
    PreparingRebalance: "preparing",
    CompletingRebalance: "completing",
    Empty: "empty",
    Dead: "dead",
    Assigning: "preparing",
    Reconciling: "completing",
    NotReady: "unready",
  };
  const CAUSES = {
    new_member: "#3d6fd6",
    member_left: "#b8477c",
    member_restarted: "#7a5ce0",
    static_member_replaced: "#d08bc0",
    subscription_changed: "#1f9488",
    partitions_changed: "#4a9a3f",
    configuration_changed: "#1f8a9e",
    settings_changed: "#7d8f2f",
    leader_rejoined: "#b98216",
    probing: "#7aa6ea",
    cooperative_follow_up: "#96693f",
    coordinator_failover_suspected: "#a89c22",
    group_created: "#6e7889",
    conversion: "#9c8aa5",
    offsets_altered: "#8f9c8a",
  };
  const HEALTH = ["critical", "warning", "info", "ok"];
  const grave = (severity) => HEALTH.length - HEALTH.indexOf(severity);
  const badge = (severity) => make(`span.badge.${HEALTH.includes(severity) ? severity : "info"}`, severity);

  function legend(entries = []) {
    const items = entries.map(([name, { colour: shade, stripe = shade }]) => {
      const swatch = make("i", { "aria-hidden": "true" });
      const inner = stripe === PLAIN ? shade : stripe;
      swatch.style.background = `linear-gradient(${shade} 35%, ${inner} 35% 65%, ${shade} 65%)`;
      return make("li", swatch, printable(name));
    });
    return items.length ? make("ul.legend", items) : null;
  }
  const paint = (style) => ({ colour: style === PLAIN || style.startsWith("#") ? style : `var(--${style})` });

  // -- columns of tables, tooltips and CSV --------------------------------------------------------

  // A column is [title, name of a row's value or function of the row, kind, { sort, cell, down }]. Kinds are text (the
  // default), id and long (that may wrap anywhere; long ones are in no tooltip), word (of ours), number, ms (a
  // duration), s, exact and until (times).
  const TIMES = ["s", "exact", "until"];
  const isNumeric = (kind) => kind === "number" || kind === "ms";
  const valueOf = ([, value], row) => (typeof value === "string" ? row[value] : value(row));

  /** Gives the text of a cell; what has no end goes on, unless records are missing that may tell of its end. */
  function inWords(column, row) {
    const [, , kind] = column;
    const value = valueOf(column, row);
    if (isNone(value) && kind === "until") return isNone(row.known_until) ? "still" : "not known";
    if (isNone(value)) return "";
    if (TIMES.includes(kind)) return clock(value, kind !== "s");
    if (kind === "number") return number(value);
    if (kind === "ms") return duration(value);
    return printable(kind === "word" ? spoken(value) : value);
  }

  function cellOf(column, row) {
    const [, , kind, how = {}] = column;
    const value = valueOf(column, row);
    const isTime = TIMES.includes(kind) && !isNone(value);
    const content = how.cell ? how.cell(row) : isTime ? time(value, kind !== "s") : inWords(column, row);
    return make(["td", kind, how.first && "first"].filter(Boolean).join("."), content);
  }

  /**
   * Writes rows as RFC 4180 has it. Spreadsheets take text that begins with = + - @ for a formula, also behind a ;
   * where that separates cells: an apostrophe before it keeps it text.
   */
  function csv(columns, rows) {
    const quoted = (text) =>
      `"${printable(text)
        .replace(/(^|;)(?=\s*[=+\-@＝＋－＠])/g, "$1'")
        .replaceAll('"', '""')}"`;
    const field = (column, row) => {
      const value = valueOf(column, row);
      if (isNone(value)) return "";
      if (TIMES.includes(column[2])) return inUtc(value);
      return typeof value === "number" ? value : quoted(value);
    };
    const units = { ms: " (ms)", ...Object.fromEntries(TIMES.map((kind) => [kind, " (UTC)"])) };
    const lines = [columns.map(([title, , kind]) => quoted(title + (units[kind] || "")))];
    for (const row of rows) lines.push(columns.map((column) => field(column, row)));
    return lines.map((fields) => `${fields.join(",")}\r\n`).join("");
  }

  /** Makes a button that saves rows; `rows` gives them when it is pressed. */
  function saves(title, columns, rows) {
    const save = () => {
      const href = URL.createObjectURL(new Blob([csv(columns, rows())], { type: "text/csv;charset=utf-8" }));
      make("a", { href, download: `${title.replace(/[^\w.-]+/g, "-").slice(0, 80)}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60e3);
    };
    return button("CSV", save, { class: "small", "aria-label": `${title}: save as CSV` });
  }

  // -- tooltips -----------------------------------------------------------------------------------

  const tip = byId("tip");
  function showTip(title, columns, row, x, y) {
    const told = columns.filter((column) => valueOf(column, row) || column[2] === "until");
    const pairs = told
      .filter(([, , kind]) => kind !== "long")
      .map((column) => [make("dt", column[0]), make("dd", inWords(column, row))]);
    tip.replaceChildren(make("b", printable(title)), make("dl", pairs));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 6))}px`;
  }
  const hideTip = () => {
    tip.hidden = true;
  };
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });

  // -- tables -------------------------------------------------------------------------------------

  const PAGE = 100; // rows that are made at once

  /** Makes a table that sorts, scrolls, and makes rows as they come into sight; `caption` tells of how many rows. */
  function table(name, columns, rows, caption, by = null) {
    const title = make("caption", { "aria-live": "polite" });
    const body = make("tbody");
    const cut = make("p.cut");
    let kept = rows;
    let sorted = rows;
    let order = by;
    let down = true;
    const headings = columns.map(([text, , kind, how = {}], at) => {
      const sort = () => {
        down = order === at ? !down : Boolean(isNumeric(kind) || TIMES.includes(kind) || how.down);
        order = at;
        fill();
      };
      const unit = TIMES.includes(kind) ? [" (", zoneLabel(), ")"] : [];
      return make(isNumeric(kind) ? "th.number" : "th", { scope: "col" }, button([text, unit].flat(), sort));
    });
    const whole = make("table", title, make("thead", make("tr", headings)), body);
    const scroll = () => {
      if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight) grow();
    };
    const box = make(
      "div.scroll",
      { tabindex: "0", role: "group", "aria-label": `${name}, a table`, scroll },
      whole,
      cut,
    );
    function grow() {
      const start = body.rows.length;
      const next = sorted.slice(start, start + PAGE);
      body.append(
        ...next.map((row, at) =>
          make(
            "tr",
            { "aria-rowindex": start + at + 2 },
            columns.map((column) => cellOf(column, row)),
          ),
        ),
      );
      const shown = start + next.length;
      cut.textContent = shown < kept.length ? `The first ${number(shown)} of ${number(kept.length)} rows.` : "";
    }
    function fill() {
      if (order !== null) {
        const key = columns[order][3]?.sort || ((row) => valueOf(columns[order], row));
        const compared = (a, b) => (down ? -1 : 1) * (typeof a === "number" ? a - b : natural(a, b));
        sorted = kept
          .map((row) => [key(row), row])
          .sort(([a], [b]) => (isNone(a) || isNone(b) ? isNone(a) - isNone(b) : compared(a, b)))
          .map(([, row]) => row);
      } else sorted = kept;
      headings.forEach((heading, at) => {
        if (at === order) heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        else heading.removeAttribute("aria-sort");
      });
      title.textContent = caption(kept.length);
      whole.setAttribute("aria-rowcount", kept.length + 1);
      body.replaceChildren();
      box.scrollTop = 0;
      grow();
    }
    fill();
    return {
      box,
      rows: () => sorted,
      keep: (filter) => {
        kept = rows.filter(filter);
        fill();
      },
    };
  }

  /** Makes a choice of some texts. */
  const choice = (id, texts) =>
    make(
      "select",
      { id, autocomplete: "off" },
      texts.map((text) => make("option", text)),
    );

  // -- charts -------------------------------------------------------------------------------------

  const LEFT = matchMedia("(max-width: 700px)").matches ? data.labels_width * 0.6 : data.labels_width;
  const RIGHT = 34;
  const plotWidth = (plot) => Math.max(160, plot.clientWidth - LEFT - RIGHT);

  function look() {
    return {
      background: PLAIN,
      font: getComputedStyle(document.body).fontFamily,
      mark: { tooltip: { content: "data" } },
      axis: {
        labelColor: colour("ink"),
        gridColor: colour("grid"),
        tickColor: colour("line"),
        domainColor: colour("line"),
        labelFontSize: 11,
      },
      axisX: { labelColor: colour("soft"), grid: true },
      axisY: { labelLimit: LEFT - 8 },
      view: { stroke: null },
    };
  }

  /**
   * Makes a figure of what a chart shows: { name, title, text, legend, notes, remark, rows, tip, columns, data }. `rows`
   * are drawn, `data` (or else `rows`) are in the table and the CSV; `tip` gives the title of a row's tooltip.
   */
  function figureOf(part, of, heading = "h4") {
    const plot = make("div.plot", {
      role: "img",
      "aria-label": `${part.title}: ${part.text}. ${part.remark || ""}`,
    });
    const rows = part.data || part.rows;
    const box = make("div", { hidden: true });
    const turn = () => {
      if (!box.firstChild) {
        const caption = () => `${part.title} of ${of}: ${part.text}`;
        box.append(table(`${part.title} of ${of}`, part.columns, rows, caption).box);
      }
      box.hidden = !box.hidden;
      opener.setAttribute("aria-expanded", String(!box.hidden));
    };
    const name = `${part.title}: as a table`;
    const opener = button("as a table", turn, { class: "small", "aria-expanded": "false", "aria-label": name });
    const figure = make(
      "figure",
      { "data-chart": part.name },
      make(
        "figcaption",
        make(heading, part.title),
        make("span", part.text),
        opener,
        saves(`${of} ${part.name}`, part.columns, () => rows),
      ),
      (part.notes || []).map((note) => make("p.soft", printable(note))),
      legend(part.legend),
      part.remark ? make("p.remark", part.remark) : null,
      plot,
      box,
    );
    return { figure, plot };
  }

  /** Draws a chart of rows over a span of time. */
  async function draw(plot, part, span) {
    const { theme } = document.documentElement.dataset;
    const isDark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    const text = JSON.stringify(charts[part.name]);
    const spec = JSON.parse(
      zone === "utc" ? text : text.replaceAll('"utc"', '"time"').replaceAll("utcFormat", "timeFormat"),
    );
    spec.data = { name: "rows", values: part.rows.map((row, at) => ({ ...row, row_number: at })) };
    const valueOfParam = ({ name, value }) => (name === "span" ? span : (value * LEFT) / data.labels_width);
    spec.params = spec.params.map((param) => ({ ...param, value: valueOfParam(param) }));
    spec.width = plotWidth(plot);
    spec.padding = { left: LEFT, right: RIGHT, top: 5, bottom: 22 };
    const tooltip = (_handler, event, item, value) => {
      const row = value && item && item.datum ? part.rows[item.datum.row_number] : null;
      if (row) showTip(part.tip(row), part.columns, row, event.clientX, event.clientY);
      else hideTip();
    };
    // ast: expressions are interpreted, so that the page needs no eval, and its policy allows none.
    // Vega gives its element a name of its own, which says nothing: ours stands around it.
    const inner = make("div", { "aria-hidden": "true" });
    plot.replaceChildren(inner);
    plot.parentElement.toggleAttribute("data-dark", isDark); // for paper
    const options = { ast: true, actions: false, defaultStyle: false, renderer: "canvas", hover: false };
    const { view } = await vegaEmbed(inner, spec, { ...options, config: look(), tooltip });
    new ResizeObserver(() => {
      const fits = plotWidth(plot);
      if (inner.isConnected && plot.clientWidth && view.width() !== fits) view.width(fits).runAsync();
    }).observe(plot);
    return view;
  }

  // -- the front page -----------------------------------------------------------------------------

  const groups = unpacked(data.groups);
  // What says most about a group first: the storm before those who fly in it.
  const weight = (a) => HEALTH.indexOf(a.severity) * 100 + data.kinds.indexOf(a.kind);
  const places = new Map(groups.map((g, at) => [g.group_id, at]));
  const place = (a) => places.get(a.group_id) ?? groups.length;
  // One order of the worst for all: what goes on, its severity and kind, and then as the groups are.
  const inFile = unpacked(data.anomalies);
  const anomalies = [...inFile].sort(
    (a, b) =>
      b.is_open - a.is_open || weight(a) - weight(b) || place(a) - place(b) || b.started_at - a.started_at,
  );
  const shownAt = new Map(data.shown.map((group, at) => [group.group_id, at]));
  const { since, until } = data.chosen;
  const isWeek = until === null && data.as_of - since === 7 * 86400e3;
  const shown = isWeek ? "the last 7 days" : "the time that is shown";

  // -- the address: what is shown, so that it can be sent on -----------------------------------------

  const asked = () => new URLSearchParams(location.hash.slice(1));
  const KEYS = ["group", "from", "to", "find", "least", "search", "health"];

  /** Makes a link to a group and a span of time; `follow` goes there. */
  function linkTo(where, text, attributes = {}) {
    const href = `#${new URLSearchParams(Object.entries(where).filter(([, value]) => !isNone(value)))}`;
    const click = () => location.hash === href && follow();
    return make("a", { ...attributes, href, click }, text);
  }

  /** Returns a function that acts once it has not been called again for so many milliseconds. */
  function atRest(act, ms) {
    let due;
    return () => {
      clearTimeout(due);
      due = setTimeout(act, ms);
    };
  }

  let changed = {};
  const writeAddress = atRest(() => {
    const held = asked();
    const next = KEYS.map((key) => [key, key in changed ? changed[key] : held.get(key)]);
    const text = String(new URLSearchParams(next.filter(([, value]) => !isNone(value))));
    changed = {};
    if (text || location.hash.includes("=")) history.replaceState(null, "", `#${text}`);
  }, 150); // browsers refuse to be told of each step
  /** Writes into the address what is shown now; null takes it out. */
  function remember(now) {
    changed = { ...changed, ...now };
    writeAddress();
  }

  function groupLink(id) {
    if (id === null) return make("span.soft", "the log");
    return linkTo({ group: id }, nameOf(id));
  }

  // What nobody reads though records come, or may: by the open anomalies of these kinds.
  const UNREAD = new Set(["unread_partition", "commit_stall", "no_progress", "orphan_topic"]);
  function tellReading(place) {
    const isUnread = (a) => UNREAD.has(a.kind) && a.label !== "two_owners" && a.severity !== "info";
    const ids = [...new Set(anomalies.filter((a) => a.is_open && isUnread(a)).map((a) => a.group_id))];
    place.append(make("b", "Is every partition read?"), " ");
    if (!ids.length) {
      place.append("As far as the log tells, yes.");
      return;
    }
    place.append(`No, ${many(ids.length, "group")} left some: `);
    ids.slice(0, 5).forEach((id, at) => place.append(at ? ", " : "", groupLink(id)));
    place.append(ids.length > 5 ? ` and ${number(ids.length - 5)} more.` : ".");
  }

  function tellFront() {
    const byHealth = Object.fromEntries(HEALTH.map((h) => [h, groups.filter((g) => g.health === h).length]));
    const sum = (name) => groups.reduce((total, g) => total + (g[name] || 0), 0);
    byId("as-of").append("as of ", ...zoned(data.as_of));
    const age = Date.now() - data.as_of;
    if (data.as_of !== null && age > 0) byId("as-of").after(make("p", `${duration(age)} old`));
    const { group, groups: pattern } = data.chosen;
    if (pattern !== null) byId("as-of").append(" · only ", nameOf(group ?? pattern));
    if (since !== null && !isWeek) byId("as-of").append(" · from ", ...zoned(since), " to ", ...zoned(until ?? data.as_of));
    const headline = byId("headline");
    if (!groups.length) {
      headline.append("There are no groups here yet: the lakehouse has no health of any group of this cluster.");
    } else {
      const worst = groups[0];
      const parts = HEALTH.filter((h) => byHealth[h]).map((h) => `${number(byHealth[h])} ${h}`);
      headline.append(`${many(data.group_count, "group")}: ${parts.join(", ")}. `);
      const why = anomalies.find((a) => a.group_id === worst.group_id);
      if (worst.health !== "ok" && why)
        headline.append("The worst is ", groupLink(worst.group_id), `: ${printable(why.summary).replace(/\.?$/, ".")}`);
    }
    if (groups.length) tellReading(byId("reading"));
    const q = data.quality;
    const missing = Object.values(q.holes).reduce((a, b) => a + b, 0);
    const failed = q.findings.length;
    const tiles = [
      ...HEALTH.map((h) => [`groups ${h}`, number(byHealth[h]), byHealth[h] ? h : ""]),
      ["open anomalies", number(sum("open_anomalies"))],
      ["rebalances in 24 h", number(sum("rebalances_24h"))],
      ["rebalancing in 24 h", duration(sum("rebalancing_24h_ms"))],
      ["records not decoded", number(q.quarantined), q.quarantined ? "warning" : ""],
      ...(missing ? [["offsets without a record", number(missing)]] : []),
      ...(failed ? [["expectations of the data that failed", number(failed), "warning"]] : []),
    ];
    byId("tiles").append(...tiles.map(([text, value, how]) => make(how ? `li.${how}` : "li", make("b", value), text)));
    byId("made").append("Made ", ...zoned(data.made_at), ` by groupledger from ${printable(data.lakehouse)}.`);
  }

  let frontView = null;
  async function drawFront() {
    const place = byId("rebalances");
    const rows = unpacked(data.rebalances);
    const step = duration(data.step_ms).replace(".0 ", " ");
    const title = `Rebalances that began, each ${step}`;
    if (!rows.length) {
      place.replaceChildren(make("figure", make("figcaption", make("h2", title), `None in ${shown}.`)));
      return;
    }
    const totals = tally(
      rows,
      (row) => row.group_id,
      (row) => row.count,
    );
    const named = totals.filter(([id]) => id !== null).slice(0, 8);
    const shades = new Map(named.map(([id], at) => [id, PALETTE[at]]));
    const nameIn = (id) => (shades.has(id) ? id : null);
    const drawn = [];
    let most = { to: 0 };
    for (const at of new Set(rows.map((row) => row.at))) {
      const counts = new Map(
        tally(
          rows.filter((row) => row.at === at),
          (row) => nameIn(row.group_id),
          (row) => row.count,
        ),
      );
      let from = 0;
      for (const id of [...shades.keys(), null].filter((key) => counts.has(key))) {
        const count = counts.get(id);
        const end = at + data.step_ms * 0.94;
        drawn.push({ at, end, from, to: from + count, count, group_id: id, colour: shades.get(id) || REST });
        from += count;
        if (from > most.to) most = drawn.at(-1);
      }
    }
    const sum = totals.reduce((n, [, count]) => n + count, 0);
    const group = (row) => row.group_id ?? "other groups";
    const part = {
      name: "rebalances",
      title,
      text: `${many(sum, "rebalance")}, most at ${clock(most.at)} ${zoneName()}: ${number(most.to)}`,
      legend: [
        ...named.map(([id, n]) => [`${id} ${number(n)}`, paint(shades.get(id))]),
        ...(totals.length > named.length ? [["other groups", OTHERS]] : []),
      ],
      rows: drawn,
      data: rows,
      tip: group,
      columns: [
        ["from", "at", "s"],
        ["group", group, "id"],
        ["rebalances", "count", "number"],
      ],
    };
    const { figure, plot } = figureOf(part, "all groups", "h2");
    place.replaceChildren(figure);
    if (frontView) frontView.finalize();
    const ats = drawn.map((row) => row.at);
    frontView = await draw(plot, part, [Math.min(...ats), Math.max(...ats) + data.step_ms]);
  }

  const spanLink = (a, text) => {
    const [from, to] = around(a).map((at) => new Date(at).toISOString());
    return a.group_id === null ? text : linkTo({ group: a.group_id, from, to }, text, { class: "plain" });
  };
  const around = (a) => {
    const end = a.ended_at ?? data.as_of;
    const margin = Math.max(1000, (end - a.started_at) * 0.1);
    return [a.started_at - margin, end + margin];
  };

  // Controls that filter a table, by their key in the address: what each shows when the address says nothing.
  const filters = {};
  function controls(control, filter, usual) {
    const change = () => {
      filter();
      remember({ [control.id]: control.value === usual ? null : control.value });
    };
    // A table follows what was typed, not each key.
    if (control.tagName === "INPUT") control.addEventListener("input", atRest(change, 100));
    else control.addEventListener("change", change);
    filters[control.id] = (value) => {
      if (control.value === (value ?? usual)) return;
      control.value = value ?? usual;
      filter();
    };
    return control;
  }
  const plain = { autocomplete: "off", spellcheck: "false" };
  const searches = (id, placeholder, filter) =>
    controls(make("input", { type: "search", id, placeholder, ...plain }), filter, "");
  const chooses = (id, texts, filter) => controls(choice(id, texts), filter, texts[0]);

  const lastSeen = (a) => {
    const ago = data.as_of - (a.ended_at ?? data.as_of);
    return ago < 60e3 ? "" : `, last seen ${duration(ago)} before the end of the log`;
  };
  const lasted = (a) => (a.ended_at === null ? null : a.ended_at - a.started_at);
  const ALL_ANOMALIES = "SELECT * FROM gold.anomalies";
  const ANOMALY = [
    ["label", "label", "word"],
    ["subject", "subject", "id"],
    ["from", "started_at", "s"],
    ["to", "ended_at", "s"],
    ["evidence", "evidence", "long"],
    ["thresholds", "thresholds", "long"],
  ];

  /** Lists incidents: each is a row that opens to its anomalies, as far as they are in the file. */
  function listIncidents() {
    byId("incidents").append(
      ...data.incidents.map((incident) => {
        const about = `${spoken(incident.cause)}, ${many(incident.group_count, "group")}, ${many(incident.anomaly_count, "anomaly", "anomalies")}`;
        const open = incident.is_open ? ["open", lastSeen(incident)] : [];
        const when = make("div.soft", about, ", began ", ...zoned(incident.started_at), open.length ? ", " : "", open);
        const summary = make("summary", badge(incident.severity), " ", make("b", "incident"), " ", printable(incident.summary), when);
        const own = incident.at.map((at) => inFile[at]);
        const items = own.map((a) =>
          make("li", badge(a.severity), " ", spoken(a.kind), " ", groupLink(a.group_id), " ", spanLink(a, printable(a.summary))),
        );
        const rest = incident.anomaly_count - own.length;
        if (rest) items.push(make("li.soft", `${number(rest)} more: `, make("code", "SELECT * FROM gold.incidents")));
        return make("details.incident", summary, make("div.found", make("ul", items)));
      }),
    );
  }

  function listAnomalies() {
    const target = byId("anomalies");
    if (!anomalies.length) {
      target.append(make("p", `None in ${shown}.`));
      return;
    }
    const label = (a) => (a.label ? make("div.soft", printable(spoken(a.label))) : null);
    const columns = [
      ["severity", "severity", "", { sort: (a) => grave(a.severity), cell: (a) => badge(a.severity), down: true }],
      ["kind", "kind", "word", { cell: (a) => [spoken(a.kind), label(a)] }],
      ["how many", "kind_count", "number"],
      ["group", "group_id", "id", { cell: (a) => groupLink(a.group_id) }],
      ["the worst of them", "summary", "id", { cell: (a) => spanLink(a, printable(a.summary)), first: true }],
      ["began", "started_at", "s"],
      ["lasted", lasted, "ms", { cell: (a) => [duration(lasted(a)), a.is_open ? make("div.soft", "open", lastSeen(a)) : null] }],
    ];
    const rows = anomalies.filter((a) => a.kind_rank === 1);
    const what = `${many(data.anomaly_count, "anomaly", "anomalies")} that may go on, or ended in ${shown}`;
    const some = `The worst ${number(rows.length)} of ${number(data.fold_count)} rows are in this file; `;
    if (rows.length < data.fold_count)
      target.append(make("p.remark", some, "all anomalies by SQL: ", make("code", ALL_ANOMALIES)));
    const caption = (n) => `${what}: ${many(n, "row")}, each of a group and a kind, the worst first`;
    const list = table("Anomalies", columns, rows, caption);
    const bounds = { all: 0, "warning and critical": grave("warning"), critical: grave("critical") };
    const filter = () => {
      const wanted = find.value.toLowerCase();
      const text = (a) => `${a.group_id ?? "the log"}\n${spoken(a.kind)}\n${a.label}\n${a.summary}`.toLowerCase();
      list.keep((a) => grave(a.severity) >= bounds[least.value] && text(a).includes(wanted));
    };
    const find = searches("find", "group, kind, words", filter);
    const least = chooses("least", Object.keys(bounds), filter);
    const save = saves("anomalies", [...columns.slice(0, -2), ...ANOMALY], list.rows);
    target.append(
      make("div.filters", { role: "search" }, make("label", "Search ", find), make("label", "Show ", least), save),
      list.box,
    );
  }

  // How a group was in each part of the last day: letters of states at rest, then ninths that it rebalanced.
  const AT_REST = { S: "Stable", E: "Empty", D: "Dead", N: "NotReady" };
  function partsOf({ day }) {
    const count = (day ?? "").length / 2;
    return Array.from({ length: count }, (_, at) => [AT_REST[day[at]], Number(day[count + at])]);
  }
  const busy = (g) => partsOf(g).filter(([, ninths]) => ninths).length;
  function inADay(g) {
    const parts = partsOf(g);
    const rest = parts.filter(([state]) => state);
    const words = tally(rest, ([state]) => state).map(([state, n]) => `${state} ${(n * 24) / parts.length} h`);
    if (busy(g)) words.push(`rebalanced in ${busy(g)} of ${parts.length} parts`);
    return words.join(", ") || "not known";
  }
  function drawnDay(g) {
    const shapes = { stable: "", empty: "", dead: "", unready: "", preparing: "" };
    const put = (style, at, height) => {
      shapes[style] += `M${at} 9h1v-${height}h-1z`;
    };
    const parts = partsOf(g);
    parts.forEach(([state, ninths], at) => {
      if (state) put(STATES[state], at, 9);
      if (ninths) put("preparing", at, Math.max(2, ninths));
    });
    const box = { viewBox: `0 0 ${parts.length || 1} 9`, preserveAspectRatio: "none" };
    const drawing = svg("svg", { ...box, class: "day", role: "img", "aria-label": inADay(g) });
    const title = svg("title", {});
    title.textContent = inADay(g);
    drawing.append(title, ...Object.entries(shapes).map(([style, d]) => svg("path", { class: style, d })));
    return drawing;
  }

  function listGroups() {
    const target = byId("groups");
    if (!groups.length) {
      target.append(make("p", "None."));
      return;
    }
    const rank = (g) => grave(g.health) * 1e9 + (g.rebalances_24h || 0);
    const hasLag = groups.some((g) => g.total_lag !== null);
    const columns = [
      ["group", "group_id", "id", { cell: (g) => groupLink(g.group_id) }],
      ["health", "health", "", { sort: rank, cell: (g) => badge(g.health), down: true }],
      ["worst anomaly", "worst_anomaly", "word"],
      ["state", "state"],
      ["the last day", inADay, "", { sort: busy, cell: drawnDay, down: true }],
      ["since", "since", "s"],
      ["members", "members", "number"],
      ["rebalances 1 h", "rebalances_1h", "number"],
      ["rebalances 24 h", "rebalances_24h", "number"],
      ["rebalances 7 d", "rebalances_7d", "number"],
      ["took in 24 h", (g) => g.rebalancing_24h_ms || null, "ms"],
      ...(hasLag ? [["lag", "total_lag", "number", { cell: (g) => behind(g.total_lag, g.total_lag_is_bound) }]] : []),
      ...(hasLag ? [["lag status", "worst_lag_status"]] : []),
      ["last commit", "last_commit_at", "s"],
    ];
    const out = data.group_count - groups.length;
    const caption = (n) =>
      `${number(n)} of ${many(data.group_count, "group")}; ${number(data.shown.length)} are shown in detail` +
      (out > 0 ? `; the healthiest ${number(out)} are left out, gold.group_health has them` : "");
    const list = table("All groups", columns, groups, caption, 1);
    const filter = () => {
      const wanted = search.value.toLowerCase();
      const isShown = (g) => health.value === "any" || g.health === health.value;
      list.keep((g) => isShown(g) && g.group_id.toLowerCase().includes(wanted));
    };
    const search = searches("search", "part of a group's id", filter);
    const health = chooses("health", ["any", ...HEALTH], filter);
    const labels = [make("label", "Search ", search), make("label", "Health ", health)];
    const saved = hasLag ? [...columns, ["lag is", (g) => atMost(g.total_lag_is_bound)]] : columns;
    target.append(make("div.filters", { role: "search" }, labels, saves("groups", saved, list.rows)), list.box);
  }

  function tellQuality() {
    const q = data.quality;
    const unexpected = (f) =>
      printable(`Not as expected, ${f.severity}: ${f.table_name}: ${f.meaning} (${f.expectation})`);
    const rows = [
      ["Records read", number(q.records)],
      ["Partitions of the log with records", number(q.partitions)],
      ["Newest record", zoned(data.as_of)],
      ["Last ingest that brought something", zoned(q.last_ingest_at)],
      ["Offsets accounted for", number(q.offsets)],
      ...Object.entries(q.holes).map(([reason, n]) => [`Offsets without a record: ${printable(reason)}`, number(n)]),
      ["Records in quarantine, that could not be decoded", number(q.quarantined)],
      ...Object.entries(q.quarantine).map(([error, n]) => [`Quarantine: ${printable(error)}`, number(n)]),
      ["Last validation", q.last_validation_at === null ? "never" : zoned(q.last_validation_at)],
      ...q.findings.map((f) => [unexpected(f), [many(f.rows_unexpected, "row"), ", ", time(f.failed_at)]]),
    ];
    const sources =
      "bronze.coverage has each hole, silver.quarantine each record, " +
      "dq.results a query for the rows that are not as expected";
    const body = rows.map(([name, value]) => make("tr", make("th", { scope: "row" }, name), make("td", value)));
    byId("quality").append(make("div.box", make("table", make("caption", sources), make("tbody", body))));
  }

  // -- a group in detail --------------------------------------------------------------------------

  const LANES = LOOKS.length;
  const opened = new Map();
  // The newest rows of a panel are in the file, by this time.
  const BEGINS = {
    states: "started_at",
    generations: "join_completed_at",
    members: "joined_at",
    owners: "valid_from",
    offsets: "hour",
    lag: "sampled_at",
  };

  const listed = ([name, value]) => [make("dt", printable(name)), make("dd", printable(value))];

  /** Says what JSON has in words: [[name, text]]. */
  function told(json) {
    const say = (value, key) => {
      if (typeof value === "number") return key.endsWith("_ms") ? duration(value) : number(value);
      if (Array.isArray(value)) return value.map((one) => say(one, key)).join(", ");
      if (value === null || typeof value !== "object") return String(value ?? "unknown");
      return Object.entries(value)
        .map(([name, one]) => `${spoken(name).replace(/ ms$/, "")} ${say(one, name)}`)
        .join("; ");
    };
    try {
      return Object.entries(JSON.parse(json) ?? {}).map(([key, v]) => [spoken(key).replace(/ ms$/, ""), say(v, key)]);
    } catch {
      return [["cut short", `${json} …`]];
    }
  }
  const bare = (host) => String(host ?? "").replace(/^\//, "");
  const whoIs = (row) => row.group_instance_id ?? row.client_id ?? row.member_id ?? "?";
  const partitionOf = (row) => `${printable(row.topic ?? "?")}/${row.topic_partition ?? "?"}`;
  const PARTITION = ["partition", partitionOf, "id"];
  const HOST = ["host", (row) => bare(row.client_host)];
  const NOT_KNOWN = "not known: records are missing";
  const NOT_KNOWN_FROM = ["not known from", "known_until", "exact"];

  function details() {
    const target = byId("details");
    if (!data.shown.length) {
      target.append(make("p", "None."));
      return;
    }
    const isCut = data.shown.length < data.group_count;
    target.append(
      make(
        "p.soft",
        isCut ? `The ${data.shown.length} worst of ${number(data.group_count)} groups` : "All groups",
        `, the worst first, over ${shown}. `,
        "Charts of a group stand above each other in time: what happened together is on one line downwards.",
      ),
    );
    const byName = new Map(groups.map((g) => [g.group_id, g]));
    data.shown.forEach((group, at) => {
      const health = byName.get(group.group_id);
      const rebalancing = health.rebalancing_24h_ms ? `, ${duration(health.rebalancing_24h_ms)} of rebalancing` : "";
      const text =
        `${health.state}${health.members === null ? "" : `, ${many(health.members, "member")}`}; ` +
        `${many(health.rebalances_24h || 0, "rebalance")} in 24 h${rebalancing}`;
      const summary = make("summary", make("h3", nameOf(group.group_id)), " ", badge(health.health));
      summary.append(make("span.facts", text));
      const whole = make("details.group", { id: `group-${at}`, toggle: () => whole.open && open(at) }, summary);
      summary.addEventListener("click", () => {
        remember({ group: whole.open ? null : group.group_id, from: null, to: null });
      });
      target.append(whole);
    });
  }

  function open(at) {
    const whole = byId(`group-${at}`);
    whole.open = true;
    if (opened.has(at)) return;
    opened.set(at, new GroupCharts(whole, data.shown[at]));
    opened.get(at).draw();
  }

  /** The charts of one group, which share a span of time. */
  class GroupCharts {
    constructor(whole, group) {
      this.group = group;
      this.name = group.group_id === "" ? "(empty id)" : printable(group.group_id);
      this.views = [];
      this.rows = Object.fromEntries(Object.entries(group.panels).map(([name, panel]) => [name, unpacked(panel.rows)]));
      this.rows.anomalies = anomalies.filter((a) => a.group_id === group.group_id);
      this.full = this.extent();
      this.cuts = Object.fromEntries(Object.keys(BEGINS).map((name) => [name, this.cut(name)]));
      // What all charts have; where that is nearly nothing, all of the time.
      const from = Math.max(this.full[0], ...Object.values(this.cuts).filter((at) => at !== null));
      this.span = [Math.min(from, this.full[1] - 1000), this.full[1]];
      this.range = make("output", { "aria-live": "polite" });
      const control = (name, text, act) => button(text, act, { "aria-label": name, title: name });
      const controls = [
        control("Zoom in", "+", () => this.zoom(0.5)),
        control("Zoom out", "−", () => this.zoom(2)),
        control("Earlier", "◀", () => this.pan(-0.5)),
        control("Later", "▶", () => this.pan(0.5)),
        control("Show all of the time", "All", () => this.set(this.full)),
        make("span.soft", "Drag over a chart to zoom in, double-click to see all; keys + − ← → 0."),
      ];
      const name = `Charts over time of group ${this.name}; plus and minus zoom, arrow keys move, 0 shows all`;
      this.panels = make("div.panels", { tabindex: "0", role: "group", "aria-label": name });
      this.cursor = make("div.cursor", { hidden: true });
      this.chosen = make("div.chosen", { hidden: true });
      this.mark = make("div.chosen", { hidden: true });
      this.end = make("div.end", { hidden: true });
      this.axis = make("div.axis", { "aria-hidden": "true" });
      this.about = make("div.about", { hidden: true, "aria-live": "polite" });
      this.veils = [];
      whole.append(
        this.listFound(),
        make("div.zoom", { role: "toolbar", "aria-label": `Span of time of ${this.name}` }, [
          this.range,
          controls,
          this.axis,
        ]),
        this.about,
        this.panels,
      );
      this.listen();
      new ResizeObserver(() => this.place()).observe(this.panels);
    }

    /** Finds from when to when the group has something to show. */
    extent() {
      const times = [
        ...this.rows.states.flatMap((s) => [s.started_at, s.ended_at]),
        ...this.rows.offsets.flatMap((o) => [o.first_commit_at, o.last_commit_at]),
        ...this.rows.members.flatMap((m) => [m.joined_at, m.left_at]),
        ...this.rows.lag.map((l) => l.sampled_at),
        data.as_of,
      ].filter((at) => !isNone(at));
      const first = Math.max(Math.min(...times), data.chosen.since);
      const last = Math.max(Math.min(Math.max(...times), data.chosen.until ?? Infinity), first + 1000);
      const margin = Math.max(500, (last - first) * 0.01);
      return [first - margin, last + margin];
    }

    /** Tells from when on all rows of a panel are in the file; null if they are anyway. */
    cut(name) {
      const rows = this.rows[name];
      if (this.group.panels[name].count <= rows.length) return null;
      return rows.map((row) => row[BEGINS[name]]).find((at) => at !== null) ?? data.as_of;
    }

    /** Tells what of a panel is not on the page. */
    leftOut(name, more = "") {
      const { count } = name === "anomalies" ? { count: this.group.anomaly_count } : this.group.panels[name];
      const held = this.rows[name].length;
      if (count <= held) return more;
      const some = `${number(held)} of ${number(count)}`;
      if (name === "anomalies") return `The worst ${some} are shown; ${ALL_ANOMALIES} has all.`;
      return `The newest ${some} rows are in this file. ${more}`;
    }

    /** Lists what was found: the worst of each kind, the others of the kind behind it. */
    listFound() {
      const out = this.leftOut("anomalies");
      const found = this.rows.anomalies;
      if (!found.length) return make("p.found", out || "Nothing wrong was found.");
      const items = [...new Set(found.map((a) => a.kind))].map((kind) => {
        const [first, ...others] = found.filter((a) => a.kind === kind);
        if (!others.length) return make("li", this.sentence(first));
        const list = make(
          "ul",
          others.map((a) => make("li", this.sentence(a))),
        );
        const more = make("details", make("summary", `${number(others.length)} more of the kind`), list);
        return make("li", this.sentence(first), " ", more);
      });
      return make("div.found", make("ul", { "aria-label": "Anomalies of the group" }, items), make("p.remark", out));
    }

    sentence(a) {
      const zoom = () => this.set(around(a));
      const [first, last] = ["first", "last"].map(
        (end) => `${a[`${end}_record_partition`]}/${a[`${end}_record_offset`]}`,
      );
      const proof = [["records", first === last ? first : `${first} to ${last} (partition/offset)`]];
      const pairs = [...told(a.evidence), ...(a.first_record_offset === null ? [] : proof)];
      const bounds = told(a.thresholds).map(([name, value]) => [`limit: ${name}`, value]);
      const evidence = make("dl.told", [...pairs, ...bounds].map(listed));
      const advice = data.advice[`${a.kind} ${a.label}`] ?? data.advice[a.kind];
      const ended = `${a.ended_at === null ? "" : ` for ${duration(lasted(a))}`}${a.is_open ? `, open${lastSeen(a)}` : ""}`;
      return [
        badge(a.severity),
        " ",
        make("span.kind", spoken(a.kind)),
        `${a.label ? ` (${printable(spoken(a.label))})` : ""}: ${printable(a.summary)} `,
        make("span.soft.when", time(a.started_at), ended),
        " ",
        button("zoom to it", zoom, { "aria-label": `zoom to it: ${spoken(a.kind)}` }),
        " ",
        make("details", make("summary", "evidence"), evidence),
        advice ? make("div.soft", make("i", "Do: "), advice) : null,
      ];
    }

    // What the charts show, as `figureOf` takes it.

    anomalyPart() {
      const rows = this.rows.anomalies.map((a) => {
        const shade = colour(`${a.severity}-fill`);
        const ends = { begin: a.started_at, end: a.ended_at ?? data.as_of };
        return { ...a, ...ends, anomaly: spoken(a.kind), colour: shade, stroke: shade, opacity: 0.55 };
      });
      const kinds = new Set(rows.map((a) => a.kind));
      return {
        name: "anomalies",
        title: "Anomalies",
        text: `${many(rows.length, "anomaly", "anomalies")} of ${many(kinds.size, "kind")}, each in the list above`,
        legend: HEALTH.filter((h) => rows.some((r) => r.severity === h)).map((h) => [h, paint(`${h}-fill`)]),
        rows,
        tip: (a) => spoken(a.kind),
        columns: [["severity", "severity"], ["kind", "kind", "word"], ["what happened", "summary", "id"], ...ANOMALY],
      };
    }

    statePart() {
      const shadeOf = (state) => STATES[state] || "dead";
      const rows = this.rows.states.map((s) => {
        const isBounded = s.evidence === "bounded";
        const shade = colour(shadeOf(s.state));
        return {
          ...s,
          begin: s.started_at,
          end: s.ended_at ?? data.as_of,
          colour: shade,
          stroke: s.state === "Stable" || s.state === "Empty" ? PLAIN : shade,
          bound_from: isBounded ? (s.started_at_min ?? s.started_at) : s.started_at,
          bound_to: isBounded ? s.started_at_max : s.started_at,
          bounds: isBounded ? colour("bounds") : PLAIN,
          best: isBounded ? colour("ink") : PLAIN,
          opacity: 1,
          title: s.state,
        };
      });
      const drawn = rows.flatMap((s) => {
        const sure = s.known_until ?? s.end;
        const bar = { ...s, end: sure };
        // Fainter than in other lanes, where nothing is as grey as Empty.
        const unknown = { ...s, ...OTHERS, begin: sure, opacity: 0.12, title: NOT_KNOWN };
        return sure < s.end ? [bar, { ...unknown, stroke: PLAIN, bounds: PLAIN, best: PLAIN }] : [bar];
      });
      const spent = tally(
        drawn,
        (s) => s.title,
        (s) => s.end - s.begin,
      );
      const seen = Object.keys(STATES).filter((name) => spent.some(([state]) => state === name));
      const bounds = ["below: a start is certain to lie in the bar; tick: best estimate", paint("bounds")];
      return {
        name: "states",
        title: "States",
        text: spent.map(([s, ms]) => `${s} ${duration(ms)}`).join(", "),
        remark: this.leftOut("states"),
        legend: [
          ...seen.map((s) => [s, paint(shadeOf(s))]),
          ...(drawn.length > rows.length ? [[`faint: ${NOT_KNOWN}`, OTHERS]] : []),
          ...(rows.some((s) => s.evidence === "bounded") ? [bounds] : []),
        ],
        rows: drawn,
        data: rows,
        tip: (s) => s.title,
        columns: [
          ["state", "state"],
          ["generation", "generation", "number"],
          ["from", "started_at", "exact"],
          ["not before", "started_at_min", "exact"],
          ["not after", "started_at_max", "exact"],
          NOT_KNOWN_FROM,
          ["to", "ended_at", "until"],
          ["lasted", (s) => (s.known_until ?? s.end) - s.begin, "ms"],
          ["members", "member_count", "number"],
          ["evidence", "evidence"],
        ],
      };
    }

    generationPart() {
      const shadeOf = (cause) => CAUSES[cause] || REST;
      const rows = this.rows.generations
        .filter((g) => g.join_started_at !== null && g.rebalance_ms !== null)
        .map((g) => ({
          ...g,
          seconds: g.rebalance_ms / 1000,
          colour: shadeOf(g.cause),
          shape: g.aborted_generations > 0 ? "triangle-up" : "circle",
        }));
      if (!rows.length) return null;
      const causes = tally(rows, (g) => g.cause ?? "unknown");
      const lengths = rows.map((g) => g.rebalance_ms).sort((a, b) => a - b);
      const aborted = rows.filter((g) => g.aborted_generations > 0).length;
      return {
        name: "generations",
        title: "Rebalances, by seconds and cause",
        text:
          `${many(rows.length, "rebalance")}, median ${duration(lengths[lengths.length >> 1])}, ` +
          `longest ${duration(lengths.at(-1))}; most often: ${spoken(causes[0][0])}${cost(rows)}`,
        notes: this.group.remedies,
        remark: this.leftOut("generations"),
        legend: [
          ...causes.map(([cause, n]) => [`${spoken(cause)} ${number(n)}`, paint(shadeOf(cause))]),
          ...(aborted ? [[`▲ after aborted ones ${number(aborted)}`, paint(PLAIN)]] : []),
        ],
        rows,
        tip: (g) => `generation ${g.generation}`,
        columns: [
          ["generation", "generation", "number"],
          ["began", "join_started_at", "exact"],
          ["took", "rebalance_ms", "ms"],
          ["cause", (g) => g.cause ?? "unknown", "word"],
          ["why", "cause_detail", "id"],
          ["members", "member_count", "number"],
          ["joined", "joined", "id"],
          ["left", "left", "id"],
          ["replaced", "replaced", "id"],
          ["moved partitions", "moved_partitions", "number"],
          ["cost (all members)", "cost_member_ms", "ms"],
          ["aborted before", "aborted_generations", "number"],
          ["assignor", "protocol"],
          ["leader", "leader_client_id", "id"],
          ["record", (g) => (isNone(g.record_offset) ? null : `${g.record_partition}/${g.record_offset}`)],
        ],
      };
    }

    /** Gives each client that joined or owned most a look; names of several hosts are told apart by the host. */
    looks() {
      const { members, owners } = this.rows;
      this.hosts = new Set(members.map((m) => m.client_host));
      const at = (row) => (this.hosts.size > 1 ? ` @ ${bare(row.client_host)}` : "");
      this.laneOf = (row) => printable(whoIs(row)) + at(row);
      const busiest = tally([...members, ...owners], this.laneOf).slice(0, LANES);
      const lanes = busiest.map(([lane]) => lane).sort(natural);
      this.lookOf = new Map(lanes.map((lane, n) => [lane, LOOKS[n]]));
    }

    memberPart() {
      const sessions = tally(this.rows.members, this.laneOf);
      const rows = [];
      for (const [lane, shade] of this.lookOf) {
        for (const m of this.rows.members.filter((row) => this.laneOf(row) === lane)) {
          const gone = m.left_at ?? data.as_of;
          const isKnown = isNone(m.known_until);
          const sure = Math.max((isKnown ? m.left_at_min : m.known_until) ?? gone, m.joined_at);
          const bar = (begin, end, opacity, title) =>
            rows.push({
              ...m,
              ...shade,
              member: lane,
              begin,
              end,
              opacity,
              title,
              stroke: opacity < 1 ? PLAIN : shade.colour,
            });
          if (m.joined_at_min !== null && m.joined_at_min < m.joined_at) bar(m.joined_at_min, m.joined_at, 0.3);
          if (sure < gone) bar(sure, gone, 0.3, isKnown ? null : NOT_KNOWN);
          bar(m.joined_at, sure, 1);
        }
      }
      const without = sessions.filter(([lane]) => !this.lookOf.has(lane)).length;
      const returning = sessions.filter(([, n]) => n > 2).slice(0, 3);
      const [host, ...hosts] = this.hosts;
      const where = hosts.length ? `on ${many(this.hosts.size, "host")}` : `all on ${printable(bare(host))}`;
      const often = returning.map(([lane, n]) => `${lane} ${n} sessions`).join(", ");
      return {
        name: "members",
        title: "Members",
        text:
          `${many(sessions.length, "client")}, ${many(this.rows.members.length, "session")}, ${where}` +
          (often ? `; came back most: ${often}` : ""),
        remark: this.leftOut("members", without ? `${many(without, "client")} with the fewest rows have no lane.` : ""),
        legend: [["faint: may have been a member", OTHERS]],
        rows,
        data: this.rows.members,
        tip: (m) => m.title ?? whoIs(m),
        columns: [
          ["client", whoIs, "id"],
          HOST,
          ["from", "joined_at", "exact"],
          ["not before", "joined_at_min", "exact"],
          NOT_KNOWN_FROM,
          ["to", "left_at", "until"],
          ["lasted", (m) => (m.known_until ?? m.left_at ?? data.as_of) - m.joined_at, "ms"],
          ["end", "end_cause", "word"],
          ["first generation", "first_generation", "number"],
          ["last generation", "last_generation", "number"],
          ["instance id", "group_instance_id", "id"],
          ["member id", "member_id", "id"],
        ],
      };
    }

    /** Gives the rows of the partitions that have most of them, in the order of lanes; and what is left out. */
    inLanes(name) {
      const partitions = tally(this.rows[name], partitionOf);
      const lanes = partitions.slice(0, LANES).map(([lane]) => lane);
      const at = new Map(lanes.sort(natural).map((lane, n) => [lane, n]));
      const rows = this.rows[name].map((row) => ({ ...row, partition: partitionOf(row) }));
      const out = partitions.length - lanes.length;
      return {
        rows: rows.filter((row) => at.has(row.partition)).sort((a, b) => at.get(a.partition) - at.get(b.partition)),
        partitions: many(lanes.length, "partition"),
        remark: this.leftOut(name, out ? `${many(out, "partition")} with the fewest rows have no lane.` : ""),
      };
    }

    ownerPart() {
      const { rows, partitions, remark } = this.inLanes("owners");
      const drawn = rows.flatMap((o) => {
        const end = o.valid_to ?? data.as_of;
        const sure = Math.max(o.known_until ?? end, o.valid_from);
        const look = this.lookOf.get(this.laneOf(o)) || OTHERS;
        const bar = { ...o, ...look, begin: o.valid_from, end: sure, stroke: PLAIN, opacity: 1 };
        const unknown = { ...bar, ...OTHERS, begin: sure, end, opacity: 0.3, title: NOT_KNOWN };
        return sure < end ? [bar, unknown] : [bar];
      });
      const isDoubted = drawn.some((o) => o.title);
      const owners = new Set(rows.map(this.laneOf));
      const seen = [...this.lookOf].filter(([lane]) => owners.has(lane));
      const others = owners.size - seen.length;
      return {
        name: "owners",
        title: "Owners of partitions",
        text: `${partitions}; ${many(rows.length, "time")} that a member owned one`,
        remark,
        legend: [
          ...seen,
          ...(others ? [[many(others, "other owner"), OTHERS]] : []),
          ...(isDoubted ? [[`faint: ${NOT_KNOWN}`, OTHERS]] : []),
        ],
        rows: drawn,
        data: this.rows.owners,
        tip: (o) => (o.title ? `${partitionOf(o)}: ${o.title}` : partitionOf(o)),
        columns: [
          PARTITION,
          ["owner", whoIs, "id"],
          HOST,
          ["from", "valid_from", "exact"],
          NOT_KNOWN_FROM,
          ["to", "valid_to", "until"],
          ["lasted", (o) => (o.known_until ?? o.valid_to ?? data.as_of) - o.valid_from, "ms"],
          ["generation", "generation", "number"],
        ],
      };
    }

    offsetPart() {
      const { rows, partitions, remark } = this.inLanes("offsets");
      const rate = (o) => o.progressed_offsets / Math.max(1, (o.last_commit_at - o.first_commit_at) / 1000);
      const kept = rows.filter((o) => o.first_commit_at !== null);
      const top = Math.max(1e-9, ...kept.map(rate));
      const drawn = kept.map((o) => {
        const share = Math.round(20 * Math.sqrt(rate(o) / top)) * 5;
        const shade = colour(o.progressed_offsets ? `color-mix(in srgb, var(--fast) ${share}%, var(--slow))` : "idle");
        return {
          ...o,
          begin: o.first_commit_at,
          end: o.last_commit_at,
          sign: o.rewinds ? "↩" : "",
          colour: shade,
          stroke: shade,
          on: colour(o.progressed_offsets && share > 50 ? "card" : "ink"),
        };
      });
      const sum = (name) => drawn.reduce((n, o) => n + o[name], 0);
      return {
        name: "offsets",
        title: "Commits, by partition and hour",
        text: `${partitions}, ${many(sum("commits"), "commit")}, ${many(sum("rewinds"), "rewind")}`,
        remark,
        legend: [
          ["slower", paint("slow")],
          [`faster (up to ${number(Number(top.toPrecision(2)))} offsets/s)`, paint("fast")],
          ...(drawn.some((o) => !o.progressed_offsets) ? [["no progress", paint("idle")]] : []),
          ...(sum("rewinds") ? [[`↩ an hour with rewinds (${number(sum("rewinds"))})`, paint(PLAIN)]] : []),
        ],
        rows: drawn,
        data: this.rows.offsets,
        tip: partitionOf,
        columns: [
          PARTITION,
          ["first commit", "first_commit_at", "s"],
          ["last commit", "last_commit_at", "s"],
          ["from offset", "first_committed_offset", "number"],
          ["to offset", "last_committed_offset", "number"],
          ["commits", "commits", "number"],
          ["offsets per second", (o) => Number(rate(o).toPrecision(3)), "number"],
          ["rewinds", "rewinds", "number"],
          ["rewound offsets", "rewound_offsets", "number"],
          ["jumps", "jumps", "number"],
          ["without progress", "no_progress_commits", "number"],
          ["deletions", "tombstones", "number"],
        ],
      };
    }

    lagPart() {
      const shades = { OK: "ok-fill", WARN: "warning-fill" };
      const rows = this.rows.lag
        .filter((l) => l.lag !== null)
        .map((l) => ({ ...l, line: colour("soft"), colour: colour(shades[l.status] || "critical-fill") }));
      if (!rows.length) return null;
      const said = (l) => `${behind(l.lag, l.is_bound)} records behind`;
      const most = rows.reduce((a, b) => (b.lag > a.lag ? b : a));
      return {
        name: "lag",
        title: "Lag: records behind, all partitions",
        text: `${many(rows.length, "sample")}: newest ${said(rows.at(-1))}, most ${behind(most.lag, most.is_bound)}`,
        remark: this.leftOut("lag"),
        legend: [
          ["OK", paint("ok-fill")],
          ["WARN", paint("warning-fill")],
          ["STOP, STALL or REWIND", paint("critical-fill")],
        ],
        rows,
        tip: said,
        columns: [
          ["sampled", "sampled_at", "s"],
          ["lag", "lag", "number"],
          ["lag is", (l) => atMost(l.is_bound)],
          ["oldest", (l) => (l.lag_seconds === null ? null : l.lag_seconds * 1000), "ms"],
          ["worst status", "status"],
          ["partitions", "partitions", "number"],
        ],
      };
    }

    parts() {
      const { anomalies: found, members, owners, offsets } = this.rows;
      this.looks();
      return [
        found.length ? this.anomalyPart() : null,
        this.statePart(),
        this.generationPart(),
        members.length ? this.memberPart() : null,
        this.lagPart(),
        owners.length ? this.ownerPart() : null,
        offsets.length ? this.offsetPart() : null,
      ].filter((part) => part);
    }

    /** Covers what a chart has no rows of, and draws how many began when in it. */
    veil(plot, name) {
      const cut = this.cuts[name] ?? null;
      if (cut === null) return;
      const { older } = this.group.panels[name];
      const most = Math.max(1, ...older.map(([, count]) => count));
      const [first, last] = this.full;
      const share = (at) => ((at - first) / (last - first)).toFixed(5);
      const step = Math.max((last - first) / 300, (data.as_of - since) / data.older_steps);
      const bars = older.map(([at, n]) => `M${share(at)} 1V${1 - n / most}H${share(Math.min(cut, at + step))}V1Z`);
      const drawn = svg("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
      drawn.append(svg("path", { d: bars.join("") }));
      const rows = older.length ? `; bars: how many rows began when, up to ${number(most)}` : "";
      const text = make("span", "not in this file before ", time(cut), rows);
      const veil = make("div.veil", drawn, text);
      plot.append(veil);
      this.veils.push({ plot, veil, drawn, cut });
    }

    /** Puts what lies over the charts to where it belongs in the span that is shown. */
    place() {
      const [from, to] = this.span;
      for (const { plot, veil, drawn, cut } of this.veils) {
        const pixel = (at) => ((at - from) / (to - from)) * plotWidth(plot);
        const width = Math.min(plotWidth(plot), pixel(cut));
        veil.hidden = !(width > 0);
        veil.style.left = `${LEFT}px`;
        veil.style.width = `${width}px`;
        drawn.style.left = `${pixel(this.full[0])}px`;
        drawn.style.width = `${pixel(this.full[1]) - pixel(this.full[0])}px`;
      }
      const plot = this.panels.querySelector(".plot");
      if (!this.views.length) return;
      const x = (at) => plot.offsetLeft + LEFT + ((at - from) / (to - from)) * plotWidth(plot);
      const inside = (at) => at >= from && at <= to;
      this.end.hidden = !inside(data.as_of);
      this.end.style.left = `${x(data.as_of)}px`;
      const start = this.picked?.join_started_at;
      const ends = [start, start + this.picked?.rebalance_ms];
      this.mark.hidden = !this.picked || ends[1] < from || ends[0] > to;
      if (!this.mark.hidden) {
        const [a, b] = ends.map((at) => x(Math.min(to, Math.max(from, at))));
        this.mark.style.left = `${a}px`;
        this.mark.style.width = `${Math.max(2, b - a)}px`;
      }
      const scale = this.views[0].scale("x").copy().domain(this.span);
      const ticks = scale.ticks(Math.max(2, Math.floor(plotWidth(plot) / 110)));
      const form = (at) => clock(at, to - from < 4000).slice(to - from < 86400e3 ? 11 : 5, to - from < 900e3 ? 23 : 16);
      this.axis.replaceChildren(
        ...[...ticks.filter((at) => Math.abs(x(at) - x(data.as_of)) > 110), data.as_of].filter(inside).map((at) => {
          const label = at === data.as_of ? make("span.last", "end of the log") : make("span", form(at));
          label.style.left = `${x(at)}px`;
          return label;
        }),
      );
    }

    /** Selects a rebalance in all lanes, and tells who, what moved and which record; null selects none. */
    pick(g) {
      this.picked = g;
      const columns = g ? this.generationPart().columns : [];
      const facts = columns.filter((column) => valueOf(column, g)).map((c) => [c[0], inWords(c, g)]);
      const moved = g ? this.rows.owners.filter((o) => o.generation === g.generation) : [];
      const owned = moved.slice(0, 40).map((o) => `${partitionOf(o)} → ${whoIs(o)}`);
      if (owned.length) facts.push(["new owners", owned.join(", ") + (moved.length > 40 ? " …" : "")]);
      this.about.hidden = !g;
      this.about.replaceChildren(
        ...(g
          ? [
              make("b", `Rebalance to generation ${g.generation} `),
              button("zoom to it", () => this.set(around({ started_at: g.join_started_at, ended_at: g.stable_at }))),
              " ",
              button("close", () => this.pick(null)),
              make("dl.told", facts.map(listed)),
            ]
          : []),
      );
      this.place();
    }

    async draw() {
      const turn = (this.turn = (this.turn || 0) + 1);
      for (const view of this.views) view.finalize();
      this.views = [];
      this.veils = [];
      this.panels.replaceChildren(this.cursor, this.chosen, this.mark, this.end);
      for (const part of this.parts()) {
        const cut = this.cuts[part.name] ?? null;
        if (cut !== null) part.text = `from ${clock(cut)} ${zoneName()} on: ${part.text}`;
        const { figure, plot } = figureOf(part, this.name);
        this.panels.append(figure);
        const view = await draw(plot, part, this.span);
        if (turn !== this.turn) {
          view.finalize();
          return;
        }
        this.views.push(view);
        this.veil(plot, part.name);
        this.place();
      }
      this.tell();
    }

    tell() {
      const [from, to] = this.span;
      this.range.replaceChildren(
        time(from, true),
        " – ",
        time(to, true),
        " ",
        zoneLabel(),
        ` (${duration(to - from)})`,
      );
      this.place();
    }

    set([from, to]) {
      const [first, last] = this.full;
      const length = Math.min(Math.max(to - from, 200), last - first);
      const begin = Math.min(Math.max(from, first), last - length);
      this.span = [begin, begin + length];
      for (const view of this.views) view.signal("span", this.span).runAsync();
      this.tell();
      hideTip();
      const isAll = length >= last - first;
      const ends = this.span.map((at) => (isAll ? null : new Date(at).toISOString()));
      remember({ group: this.group.group_id, from: ends[0], to: ends[1] });
    }

    zoom(factor, share = 0.5) {
      const [a, b] = this.span;
      const middle = a + (b - a) * share;
      this.set([middle - (middle - a) * factor, middle + (b - middle) * factor]);
    }

    pan(share) {
      const [a, b] = this.span;
      this.set([a + (b - a) * share, b + (b - a) * share]);
    }

    listen() {
      const plotOf = (event) => event.target.closest?.(".plot");
      // Plots of a group have one width. Shares are of the span of time.
      const plot = () => this.panels.querySelector(".plot");
      const shareAt = (x) => (x - plot().getBoundingClientRect().left - LEFT) / plotWidth(plot());
      const pixel = (share) => plot().offsetLeft + LEFT + share * plotWidth(plot());
      const isInside = (share) => share >= 0 && share <= 1;
      const inside = (share) => Math.min(1, Math.max(0, share));
      let from = null;
      let isClick = true;
      this.panels.addEventListener("click", (event) => {
        const [first, last] = this.span;
        if (!isClick || !plotOf(event)?.closest("[data-chart=generations]")) return;
        const at = first + (last - first) * shareAt(event.clientX);
        const far = (g) => Math.abs(g.join_started_at - at);
        const nearest = this.rows.generations.filter((g) => g.rebalance_ms !== null && g.join_started_at !== null);
        const [g] = nearest.sort((a, b) => far(a) - far(b));
        if (g && (far(g) / (last - first)) * plotWidth(plot()) < 8) this.pick(g);
      });
      const dragged = (event) => [from, inside(shareAt(event.clientX))].sort((x, y) => x - y);
      const isDrag = ([a, b]) => pixel(b) - pixel(a) >= 4;
      this.panels.addEventListener("pointerdown", (event) => {
        const share = shareAt(event.clientX);
        isClick = true;
        if (event.button !== 0 || event.pointerType === "touch" || !plotOf(event) || !isInside(share)) return;
        from = share;
        event.preventDefault();
        this.panels.focus({ preventScroll: true });
      });
      addEventListener("pointermove", (event) => {
        if (!this.panels.clientWidth) return;
        if (from !== null) {
          const [a, b] = dragged(event);
          this.chosen.hidden = !isDrag([a, b]);
          this.chosen.style.left = `${pixel(a)}px`;
          this.chosen.style.width = `${pixel(b) - pixel(a)}px`;
          hideTip();
        }
        const share = shareAt(event.clientX);
        const isHere = this.panels.contains(event.target);
        this.cursor.hidden = !(isHere && plotOf(event) && isInside(share));
        if (!this.cursor.hidden) {
          const [a, b] = this.span;
          this.cursor.style.left = `${pixel(share)}px`;
          this.cursor.dataset.at = clock(a + (b - a) * share, b - a < 900e3).slice(11);
        }
        else if (isHere) hideTip();
      });
      addEventListener("pointerup", (event) => {
        if (from === null) return;
        const ends = dragged(event);
        const [first, last] = this.span;
        from = null;
        this.chosen.hidden = true;
        isClick = !isDrag(ends);
        if (!isClick) this.set(ends.map((share) => first + (last - first) * share));
      });
      this.panels.addEventListener("dblclick", (event) => {
        if (plotOf(event)) this.set(this.full);
      });
      const wheel = (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, inside(shareAt(event.clientX)));
      };
      this.panels.addEventListener("wheel", wheel, { passive: false });
      this.panels.addEventListener("pointerleave", hideTip);
      const keys = {
        "+": () => this.zoom(0.5),
        "=": () => this.zoom(0.5),
        "-": () => this.zoom(2),
        ArrowLeft: () => this.pan(-0.25),
        ArrowRight: () => this.pan(0.25),
        0: () => this.set(this.full),
        Home: () => this.set(this.full),
      };
      this.panels.addEventListener("keydown", (event) => {
        const isOurs = event.target === this.panels && !event.ctrlKey && !event.metaKey && !event.altKey;
        if (!isOurs || !(event.key in keys)) return;
        event.preventDefault();
        keys[event.key]();
      });
    }
  }

  // -- settings -----------------------------------------------------------------------------------

  async function redraw() {
    known = {};
    showTimes();
    await Promise.all([drawFront(), ...[...opened.values()].map((shown) => shown.draw())]);
  }

  function settings() {
    const zones = byId("zone");
    zones.append(make("option", { value: "utc" }, "UTC"));
    zones.append(make("option", { value: "local" }, `${localZone} (this browser)`));
    zones.addEventListener("change", () => {
      zone = zones.value;
      redraw();
    });
    const theme = byId("theme");
    theme.addEventListener("change", () => {
      document.documentElement.dataset.theme = theme.value;
      redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    byId("settings").addEventListener("submit", (event) => event.preventDefault());
  }

  /** Says how to get what the file does not have of a group. */
  function tellElsewhere(name) {
    const place = byId("elsewhere");
    place.hidden = name === null || shownAt.has(name);
    if (place.hidden) return;
    const some = `the ${number(data.shown.length)} of ${many(data.group_count, "group")}`;
    const isListed = groups.some((g) => g.group_id === name);
    const held = isListed ? ` is not among ${some} that this file shows in detail.` : " is not in this file.";
    const quoted = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;
    const ends = ["from", "to"].map((end) => Date.parse(asked().get(end)));
    const at = (option, ms) => (Number.isFinite(ms) ? ` ${option} ${quoted(inUtc(ms).slice(0, 19))}` : "");
    const line =
      `./spark-submit.sh explain --lakehouse ${quoted(data.lakehouse)} --cluster ${quoted(data.cluster)} ` +
      `--group ${quoted(printable(name))}${at("--since", ends[0])}${at("--until", ends[1])} --html group.html`;
    place.replaceChildren(make("b", nameOf(name)), held, " This makes a page of it: ", make("code", line));
    for (const key of ["find", "search"]) filters[key]?.(name);
  }

  /** Shows what the address asks for, and tells whether it asks for a group. */
  function follow() {
    const wanted = asked();
    for (const [key, show] of Object.entries(filters)) show(wanted.get(key));
    const name = wanted.get("group");
    tellElsewhere(name);
    if (name === null) return false;
    const at = shownAt.get(name);
    if (at !== undefined) {
      open(at);
      const span = ["from", "to"].map((end) => Date.parse(wanted.get(end)));
      if (span.every(Number.isFinite)) opened.get(at).set(span);
    }
    byId(at === undefined ? "elsewhere" : `group-${at}`).scrollIntoView();
    return true;
  }

  settings();
  tellFront();
  listIncidents();
  listAnomalies();
  listGroups();
  details();
  tellQuality();
  addEventListener("hashchange", follow);
  drawFront().then(() => {
    if (!follow() && data.shown.length) open(0);
    document.documentElement.dataset.ready = "true";
  });
})();
