// Shows what the page holds. Names of groups, clients and topics were chosen by strangers: they become text nodes,
// never markup.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("data");
  const charts = read("charts");
  const byId = (id) => document.getElementById(id);

  // -- small things -------------------------------------------------------------------------------

  /** Makes an element: make("a.soft", { href: "#x" }, "text", child). */
  function make(name, attributes, ...children) {
    const [tag, ...classes] = name.split(".");
    const element = document.createElement(tag);
    if (classes.length) element.className = classes.join(" ");
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false)
        element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  }

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
  const nameOf = (text) => make("bdi", {}, text === "" ? "(empty id)" : printable(text));
  const number = (value) => (value === null || value === undefined ? "" : Number(value).toLocaleString("en-US"));
  const many = (n, one, more) => `${number(n)} ${n === 1 ? one : more || `${one}s`}`;

  function duration(ms) {
    if (ms === null || ms === undefined) return "";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 120e3) return `${(ms / 1000).toFixed(ms < 10e3 ? 1 : 0)} s`;
    if (ms < 7200e3) return `${Math.round(ms / 60e3)} min`;
    if (ms < 172800e3) return `${(ms / 3600e3).toFixed(1)} h`;
    return `${(ms / 86400e3).toFixed(1)} d`;
  }

  // -- times --------------------------------------------------------------------------------------

  const localZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  let zone = "utc";
  const zoneName = () => (zone === "utc" ? "UTC" : localZone);

  /** Gives a time in the zone that is chosen; `form` is "ms", "s", "min" or "clock". */
  function clock(ms, form = "s") {
    if (ms === null || ms === undefined) return "";
    const date = new Date(zone === "utc" ? ms : ms - new Date(ms).getTimezoneOffset() * 60e3);
    const text = date.toISOString().replace("T", " ");
    if (form === "clock") return text.slice(11, 23);
    return text.slice(0, { ms: 23, s: 19, min: 16 }[form]);
  }

  function time(ms, form = "s") {
    if (ms === null || ms === undefined) return "";
    return make("time", { datetime: new Date(ms).toISOString(), "data-ms": ms, "data-form": form }, clock(ms, form));
  }
  const zoneLabel = () => make("span.zone", {}, zoneName());

  function showTimes() {
    for (const element of document.querySelectorAll("time[data-ms]"))
      element.textContent = clock(Number(element.dataset.ms), element.dataset.form);
    for (const element of document.querySelectorAll(".zone")) element.textContent = zoneName();
  }

  // -- colours ------------------------------------------------------------------------------------

  const probe = make("span", { hidden: true });
  document.body.append(probe);
  let known = {};
  /** Gives the colour of a CSS variable in the theme that is shown, as the charts take it. */
  function colour(name) {
    if (!(name in known)) {
      probe.style.color = `var(--${name})`;
      known[name] = getComputedStyle(probe).color;
    }
    return known[name];
  }
  const PALETTE = [
    "#4f7bd9",
    "#e8a317",
    "#ee6c59",
    "#35b0a0",
    "#a463f2",
    "#5aa845",
    "#e377b4",
    "#8db4f4",
    "#a9754f",
    "#c2b33b",
  ];
  const REST = "#98a0ad";
  const STATES = {
    Stable: "stable",
    PreparingRebalance: "preparing",
    CompletingRebalance: "completing",
    Empty: "empty",
    Dead: "dead",
    Assigning: "preparing",
    Reconciling: "completing",
    NotReady: "dead",
  };
  const CAUSES = {
    new_member: "#4f7bd9",
    member_left: "#ee6c59",
    member_restarted: "#a463f2",
    static_member_replaced: "#e377b4",
    subscription_changed: "#35b0a0",
    partitions_changed: "#5aa845",
    leader_rejoined: "#e8a317",
    probing: "#8db4f4",
    cooperative_follow_up: "#a9754f",
    coordinator_failover_suspected: "#c2b33b",
    group_created: "#6e7889",
    conversion: "#6e7889",
    unknown: REST,
  };
  const HEALTH = ["critical", "warning", "info", "ok"];
  const spoken = (name) => String(name).replaceAll("_", " ");

  function between(a, b, share) {
    const parts = [a, b].map((c) => c.match(/[\d.]+/g).map(Number));
    return `rgb(${[0, 1, 2].map((i) => Math.round(parts[0][i] + (parts[1][i] - parts[0][i]) * share)).join(",")})`;
  }

  const badge = (severity) => make(`span.badge.${HEALTH.includes(severity) ? severity : "info"}`, {}, severity);
  function legend(entries) {
    return make(
      "ul.legend",
      {},
      entries.map(([name, shade]) => {
        const swatch = make("i", { "aria-hidden": "true" });
        swatch.style.background = shade;
        return make("li", {}, swatch, typeof name === "string" ? printable(name) : name);
      }),
    );
  }

  // -- tooltips -----------------------------------------------------------------------------------

  const tip = byId("tip");
  function showTip(title, pairs, x, y) {
    const list = make("dl");
    for (const [term, value] of pairs) {
      if (value !== "" && value !== null && value !== undefined)
        list.append(make("dt", {}, term), make("dd", {}, printable(value)));
    }
    tip.replaceChildren(make("b", {}, printable(title)), list);
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

  /**
   * Makes a table. A column is [title, value of a row, { number, when, sort, cell }]. It shows `step` rows, and more
   * when asked.
   * The caption gets the number of rows.
   */
  function table(columns, rows, { caption, step = 100, sortable = false, by = null, down = true }) {
    const body = make("tbody");
    const title = make("caption");
    const more = make("button.further", { type: "button" });
    const page = Math.max(step, 100);
    let shown = step;
    let kept = rows;
    let order = by;
    const headings = columns.map(([name, , how = {}], at) => {
      const text = [name, how.when ? [" (", zoneLabel(), ")"] : []].flat();
      const heading = make(
        how.number ? "th.number" : "th",
        { scope: "col" },
        sortable ? make("button", { type: "button" }, text) : text,
      );
      if (sortable) {
        heading.firstChild.addEventListener("click", () => {
          down = order === at ? !down : Boolean(how.number || how.when || how.down);
          order = at;
          fill();
        });
      }
      return heading;
    });
    function fill() {
      let sorted = kept;
      if (order !== null) {
        const [, value, how = {}] = columns[order];
        const key = how.sort || value;
        const keyed = kept.map((row) => [key(row), row]);
        keyed.sort(([a], [b]) => {
          const none = (v) => v === null || v === undefined || v === "";
          if (none(a) || none(b)) return none(a) - none(b);
          const compared = typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
          return down ? -compared : compared;
        });
        sorted = keyed.map(([, row]) => row);
      }
      headings.forEach((heading, at) => {
        if (sortable) heading.setAttribute("aria-sort", at === order ? (down ? "descending" : "ascending") : "none");
      });
      body.replaceChildren(
        ...sorted.slice(0, shown).map((row) =>
          make(
            "tr",
            {},
            columns.map(([, value, how = {}]) => {
              const cell = how.cell
                ? how.cell(row)
                : how.when
                  ? time(value(row), how.when)
                  : how.number
                    ? number(value(row))
                    : printable(value(row) ?? "");
              return make(how.number ? "td.number" : how.when ? "td.when" : how.id ? "td.id" : "td", {}, cell);
            }),
          ),
        ),
      );
      title.textContent = caption(kept.length, Math.min(shown, kept.length));
      more.hidden = kept.length <= shown;
      more.textContent = `Show ${number(Math.min(page, Math.max(0, kept.length - shown)))} more`;
    }
    more.addEventListener("click", () => {
      shown += page;
      fill();
    });
    fill();
    const whole = make(
      "div",
      {},
      make(
        "div.wide",
        { tabindex: "0", role: "region", "aria-label": "Table, can be scrolled" },
        make("table", {}, title, make("thead", {}, make("tr", {}, headings)), body),
      ),
      more,
    );
    return {
      whole,
      keep: (filter) => {
        kept = rows.filter(filter);
        shown = step;
        fill();
      },
    };
  }

  // -- charts -------------------------------------------------------------------------------------

  const LEFT = data.labels_width;
  const RIGHT = 34;
  const plotWidth = (element) => Math.max(160, element.clientWidth - LEFT - RIGHT);

  function look() {
    const soft = colour("soft");
    return {
      background: "transparent",
      font: getComputedStyle(document.body).fontFamily,
      mark: { tooltip: { content: "data" } },
      axis: {
        labelColor: colour("ink"),
        titleColor: soft,
        gridColor: colour("grid"),
        tickColor: colour("line"),
        domainColor: colour("line"),
        labelFontSize: 11,
      },
      axisX: { labelColor: soft, grid: true },
      view: { stroke: null },
    };
  }

  /** Puts the axis of time into the zone that is chosen. */
  function inZone(node) {
    if (Array.isArray(node)) return node.map(inZone);
    if (node === null || typeof node !== "object") return node;
    return Object.fromEntries(
      Object.entries(node).map(([key, value]) => {
        if (zone === "local" && key === "type" && value === "utc") return [key, "time"];
        if (zone === "local" && key === "labelExpr") return [key, value.replaceAll("utcFormat", "timeFormat")];
        return [key, inZone(value)];
      }),
    );
  }

  /** Draws a chart of rows; `tips` gives a title and pairs for a row. */
  async function draw(element, name, rows, span, tips) {
    const spec = inZone(charts[name]);
    spec.data = { name: "rows", values: rows.map((row, at) => ({ ...row, row_number: at })) };
    spec.params = spec.params.map((param) => (param.name === "span" ? { ...param, value: span } : param));
    spec.width = plotWidth(element);
    spec.padding = { left: LEFT, right: RIGHT, top: 5, bottom: 22 };
    const tooltip = (_handler, event, item, value) => {
      const row = value && item && item.datum ? rows[item.datum.row_number] : null;
      if (row) showTip(...tips(row), event.clientX, event.clientY);
      else hideTip();
    };
    // ast: expressions are interpreted, so that the page needs no eval, and its policy allows none.
    // Vega gives its element a name of its own, which says nothing: ours stands around it.
    const inner = make("div", { "aria-hidden": "true" });
    element.replaceChildren(inner);
    const { view } = await vegaEmbed(inner, spec, {
      ast: true,
      actions: false,
      defaultStyle: false,
      renderer: "canvas",
      config: look(),
      tooltip,
      hover: false,
    });
    return view;
  }

  // -- the front page -----------------------------------------------------------------------------

  const groups = unpacked(data.groups);
  // What says most about a group first: the storm before those who fly in it.
  const TELLING = [
    "rebalance_storm",
    "stuck_rebalance",
    "slow_rebalance",
    "aborted_rebalances",
    "offsets_expired",
    "offset_reset",
    "no_progress",
    "commit_stall",
  ];
  const weight = (a) => {
    const at = TELLING.indexOf(a.kind);
    return HEALTH.indexOf(a.severity) * 100 + (at < 0 ? TELLING.length : at);
  };
  const anomalies = unpacked(data.anomalies).sort(
    (a, b) => b.is_open - a.is_open || weight(a) - weight(b) || b.started_at - a.started_at,
  );
  const shownAt = new Map(data.shown.map((group, at) => [group.group_id, at]));
  const days = Math.round(data.window_ms / 86400e3);

  function groupLink(id) {
    if (id === null) return make("span.soft", {}, "the log");
    if (!shownAt.has(id)) return nameOf(id);
    const link = make("a", { href: `#group-${shownAt.get(id)}` }, nameOf(id));
    link.addEventListener("click", () => open(shownAt.get(id)));
    return link;
  }

  function tellFront() {
    const byHealth = Object.fromEntries(HEALTH.map((h) => [h, groups.filter((g) => g.health === h).length]));
    const sum = (name) => groups.reduce((total, g) => total + (g[name] || 0), 0);
    const going = groups.reduce((total, g) => total + (g.open_anomalies || 0), 0);
    const parts = HEALTH.filter((h) => byHealth[h]).map((h) => `${number(byHealth[h])} ${h}`);
    byId("as-of").append("as of ", time(data.as_of, "s"), " ", data.as_of === null ? "" : zoneLabel());
    const headline = byId("headline");
    if (!groups.length) {
      headline.append("There are no groups here yet: the lakehouse has no health of any group of this cluster.");
    } else {
      const worst = groups[0];
      headline.append(`${many(data.group_count, "group")}: ${parts.join(", ")}. `);
      const why = anomalies.find((a) => a.group_id === worst.group_id);
      if (worst.health !== "ok" && why)
        headline.append("The worst is ", groupLink(worst.group_id), `: ${printable(why.summary)}.`);
    }
    const tile = (text, value, how = "") => make(`li${how ? `.${how}` : ""}`, {}, make("b", {}, value), text);
    const tiles = byId("tiles");
    for (const h of HEALTH) tiles.append(tile(`groups ${h}`, number(byHealth[h]), byHealth[h] ? h : ""));
    tiles.append(tile("open anomalies", number(going)));
    tiles.append(tile("rebalances in 24 h", number(sum("rebalances_24h"))));
    tiles.append(tile("rebalancing in 24 h", duration(sum("rebalancing_24h_ms")) || "0 s"));
    const q = data.quality;
    const missing = Object.values(q.holes).reduce((a, b) => a + b, 0);
    tiles.append(tile("records not decoded", number(q.quarantined), q.quarantined ? "warning" : ""));
    if (missing) tiles.append(tile("offsets without a record", number(missing)));
    if (q.findings.length)
      tiles.append(tile("expectations of the data that failed", number(q.findings.length), "warning"));
    byId("made").append(
      "Made ",
      time(data.made_at, "s"),
      " ",
      zoneLabel(),
      ` by groupledger from ${printable(data.lakehouse)}.`,
    );
  }

  let frontView = null;
  async function drawFront() {
    const figure = byId("rebalances");
    const rows = unpacked(data.rebalances);
    figure.replaceChildren();
    const stepText = duration(data.step_ms).replace(".0 ", " ");
    const caption = make("figcaption", {}, make("h2", {}, `Rebalances that began, each ${stepText}`));
    figure.append(caption);
    if (!rows.length) {
      caption.append("None in the last ", `${days} days.`);
      return;
    }
    const totals = new Map();
    for (const row of rows) totals.set(row.group_id, (totals.get(row.group_id) || 0) + row.count);
    const named = [...totals]
      .filter(([id]) => id !== null)
      .sort((a, b) => b[1] - a[1])
      .slice(0, 8)
      .map(([id]) => id);
    const shadeOf = (id) => (named.includes(id) ? PALETTE[named.indexOf(id)] : REST);
    const bars = new Map();
    for (const row of rows) {
      const bar = bars.get(row.at) || new Map();
      bars.set(row.at, bar);
      const key = named.includes(row.group_id) ? row.group_id : null;
      bar.set(key, (bar.get(key) || 0) + row.count);
    }
    const drawn = [];
    let most = { total: 0 };
    for (const [at, bar] of bars) {
      let from = 0;
      for (const id of [...named, null]) {
        if (!bar.has(id)) continue;
        const count = bar.get(id);
        drawn.push({ at, end: at + data.step_ms * 0.94, from, to: from + count, count, id, colour: shadeOf(id) });
        from += count;
      }
      if (from > most.total) most = { total: from, at };
    }
    const entries = named.map((id) => [`${printable(id)} ${number(totals.get(id))}`, shadeOf(id)]);
    if (totals.size > named.length) entries.push(["other groups", REST]);
    caption.append(legend(entries));
    const plot = make("div.plot", {
      role: "img",
      "aria-label": `Bars over time: ${many(
        [...totals.values()].reduce((a, b) => a + b, 0),
        "rebalance",
      )}, most at ${clock(most.at)} ${zoneName()}: ${most.total} in ${stepText}.`,
    });
    figure.append(plot);
    const ats = [...bars.keys()];
    const span = [Math.min(...ats), Math.max(...ats) + data.step_ms];
    if (frontView) frontView.finalize();
    frontView = await draw(plot, "rebalances", drawn, span, (row) => [
      row.id === null ? "other groups" : row.id,
      [
        ["rebalances", number(row.count)],
        ["from", `${clock(row.at)} ${zoneName()}`],
        ["in", stepText],
      ],
    ]);
    const totalsOf = make("details.more", {}, make("summary", {}, "As a table"));
    totalsOf.append(
      table(
        [
          ["from", (r) => r.at, { when: "s" }],
          ["group", (r) => r.id ?? "other groups"],
          ["rebalances", (r) => r.count, { number: true }],
        ],
        drawn,
        { caption: (n) => `${many(n, "bar")} of the chart`, step: 200 },
      ).whole,
    );
    figure.append(totalsOf);
  }

  const lasted = (a) => (a.ended_at === null ? "" : duration(a.ended_at - a.started_at));

  function listAnomalies() {
    const target = byId("anomalies");
    if (!anomalies.length) {
      target.append(make("p", {}, `None in the last ${days} days.`));
      return;
    }
    const order = (severity) => HEALTH.length - HEALTH.indexOf(severity);
    const out = data.anomaly_count - anomalies.length;
    const list = table(
      [
        ["severity", (a) => a.severity, { sort: (a) => order(a.severity), cell: (a) => badge(a.severity), down: true }],
        [
          "kind",
          (a) => a.kind,
          { cell: (a) => [spoken(a.kind), a.label ? make("span.soft", {}, ` ${printable(spoken(a.label))}`) : null] },
        ],
        ["group", (a) => a.group_id, { cell: (a) => groupLink(a.group_id), id: true }],
        ["what happened", (a) => a.summary],
        ["began", (a) => a.started_at, { when: "s" }],
        [
          "lasted",
          (a) => (a.ended_at === null ? null : a.ended_at - a.started_at),
          { number: true, cell: (a) => [lasted(a), a.is_open ? make("span.soft", {}, " open") : null] },
        ],
      ],
      anomalies,
      {
        caption: (n, shown) =>
          `${many(n, "anomaly", "anomalies")} that may go on, or ended in the last ${days} days` +
          (shown < n ? `; ${number(shown)} shown` : "") +
          (out > 0 ? `; ${number(out)} more are in gold.anomalies` : ""),
        step: 8,
        sortable: true,
      },
    );
    const least = make(
      "select",
      { autocomplete: "off" },
      ["all", "warning and critical", "critical"].map((text) => make("option", {}, text)),
    );
    least.addEventListener("change", () =>
      list.keep((a) => order(a.severity) >= [0, order("warning"), order("critical")][least.selectedIndex]),
    );
    list.whole.className = "box";
    target.append(make("p.filters", {}, make("label", {}, "Show ", least)), list.whole);
  }

  function listGroups() {
    const target = byId("groups");
    if (!groups.length) {
      target.append(make("p", {}, "None."));
      return;
    }
    const rank = (g) => HEALTH.length - HEALTH.indexOf(g.health);
    const out = data.group_count - groups.length;
    const hasLag = groups.some((g) => g.total_lag !== null);
    const list = table(
      [
        ["group", (g) => g.group_id, { cell: (g) => groupLink(g.group_id), id: true }],
        [
          "health",
          (g) => g.health,
          { sort: (g) => rank(g) * 1e9 + (g.rebalances_24h || 0), cell: (g) => badge(g.health), down: true },
        ],
        ["worst anomaly", (g) => (g.worst_anomaly === null ? "" : spoken(g.worst_anomaly))],
        ["state", (g) => g.state],
        ["since", (g) => g.since, { when: "s" }],
        ["members", (g) => g.members, { number: true }],
        ["rebalances 1 h", (g) => g.rebalances_1h, { number: true }],
        ["24 h", (g) => g.rebalances_24h, { number: true }],
        ["7 d", (g) => g.rebalances_7d, { number: true }],
        [
          "took in 24 h",
          (g) => g.rebalancing_24h_ms,
          { number: true, cell: (g) => duration(g.rebalancing_24h_ms || null) },
        ],
        ...(hasLag
          ? [
              ["lag", (g) => g.total_lag, { number: true }],
              ["lag status", (g) => g.worst_lag_status],
            ]
          : []),
        ["last commit", (g) => g.last_commit_at, { when: "s" }],
      ],
      groups,
      {
        caption: (n, shown) =>
          `${number(n)} of ${many(data.group_count, "group")}` +
          (shown < n ? `, ${number(shown)} shown` : "") +
          "; the linked ones are shown in detail" +
          (out > 0 ? `; the healthiest ${number(out)} are left out, gold.group_health has them` : ""),
        step: 12,
        sortable: true,
        by: 1,
      },
    );
    list.whole.className = "box";
    const search = make("input", {
      type: "search",
      id: "search",
      placeholder: "part of a group's id",
      autocomplete: "off",
      spellcheck: "false",
    });
    const health = make(
      "select",
      { id: "health", autocomplete: "off" },
      ["any", ...HEALTH].map((h) => make("option", {}, h)),
    );
    const filter = () => {
      const wanted = search.value.toLowerCase();
      list.keep(
        (g) => g.group_id.toLowerCase().includes(wanted) && (health.value === "any" || g.health === health.value),
      );
    };
    search.addEventListener("input", filter);
    health.addEventListener("change", filter);
    target.append(
      make(
        "div.filters",
        { role: "search" },
        make("label", {}, "Search ", search),
        make("label", {}, "Health ", health),
      ),
      list.whole,
    );
  }

  function tellQuality() {
    const q = data.quality;
    const rows = [
      ["Records read", number(q.records)],
      ["Partitions of the log with records", number(q.partitions)],
      ["Newest record", data.as_of === null ? "" : [time(data.as_of), " ", zoneLabel()]],
      [
        "Last ingest that brought something",
        q.last_ingest_at === null ? "" : [time(q.last_ingest_at), " ", zoneLabel()],
      ],
      ["Offsets accounted for", number(q.offsets)],
      ...Object.entries(q.holes).map(([reason, n]) => [`Offsets without a record: ${printable(reason)}`, number(n)]),
      ["Records in quarantine, that could not be decoded", number(q.quarantined)],
      ...Object.entries(q.quarantine).map(([error, n]) => [`Quarantine: ${printable(error)}`, number(n)]),
      ["Last validation", q.last_validation_at === null ? "never" : [time(q.last_validation_at), " ", zoneLabel()]],
      ...q.findings.map((f) => [
        `Not as expected, ${f.severity}: ${printable(f.table_name)}: ` +
          `${printable(f.meaning)} (${printable(f.expectation)})`,
        [many(f.rows_unexpected, "row"), ", ", time(f.at)],
      ]),
    ];
    const body = rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
    byId("quality").append(
      make(
        "div.box.wide",
        {},
        make(
          "table",
          {},
          make(
            "caption",
            {},
            "bronze.coverage has each hole, silver.quarantine each record, " +
              "dq.results a query for the rows that are not as expected",
          ),
          make("tbody", {}, body),
        ),
      ),
    );
  }

  // -- a group in detail --------------------------------------------------------------------------

  const LANES = 40;
  const opened = new Map();
  const bare = (host) => String(host ?? "").replace(/^\//, "");
  const whoIs = (row) => row.group_instance_id ?? row.client_id ?? row.member_id ?? "?";

  function details() {
    const target = byId("details");
    if (!data.shown.length) {
      target.append(make("p", {}, "None."));
      return;
    }
    target.append(
      make(
        "p.soft",
        {},
        (data.shown.length < data.group_count
          ? `The ${data.shown.length} worst of ${number(data.group_count)} groups`
          : "All groups") +
          `, the worst first, over the last ${days} days. ` +
          "Charts of a group stand above each other in time: what happened together is on one line downwards.",
      ),
    );
    const byName = new Map(groups.map((g) => [g.group_id, g]));
    data.shown.forEach((group, at) => {
      const health = byName.get(group.group_id);
      const rebalancing = health.rebalancing_24h_ms ? `, ${duration(health.rebalancing_24h_ms)} of rebalancing` : "";
      const text =
        `${health.state}, ${many(health.members || 0, "member")}; ` +
        `${many(health.rebalances_24h || 0, "rebalance")} in 24 h${rebalancing}`;
      const whole = make(
        "details.group",
        { id: `group-${at}` },
        make(
          "summary",
          {},
          make("h3", {}, nameOf(group.group_id)),
          " ",
          badge(health.health),
          make("span.facts", {}, text),
        ),
      );
      whole.addEventListener("toggle", () => {
        if (whole.open) show(at, whole, group, health);
      });
      target.append(whole);
    });
  }

  function open(at) {
    const whole = byId(`group-${at}`);
    if (whole) whole.open = true;
  }

  function show(at, whole, group, health) {
    if (opened.has(at)) return;
    const shown = new GroupCharts(whole, group, health);
    opened.set(at, shown);
    shown.draw();
  }

  /** The charts of one group, which share a span of time. */
  class GroupCharts {
    constructor(whole, group, health) {
      this.id = group.group_id;
      this.group = group;
      this.views = [];
      this.rows = Object.fromEntries(Object.entries(group.panels).map(([name, panel]) => [name, unpacked(panel.rows)]));
      this.rows.anomalies = anomalies.filter((a) => a.group_id === group.group_id);
      this.full = this.extent();
      this.span = this.full;
      whole.append(this.listFound());
      this.range = make("output", { "aria-live": "polite" });
      const button = (label, text, act) => {
        const made = make("button", { type: "button", "aria-label": label, title: label }, text);
        made.addEventListener("click", act);
        return made;
      };
      whole.append(
        make(
          "div.zoom",
          { role: "toolbar", "aria-label": "Span of time" },
          this.range,
          button("Zoom in", "+", () => this.zoom(0.5)),
          button("Zoom out", "−", () => this.zoom(2)),
          button("Earlier", "◀", () => this.pan(-0.5)),
          button("Later", "▶", () => this.pan(0.5)),
          button("Show all of the time", "All", () => this.set(this.full)),
          make("span.soft", {}, "Drag over a chart to zoom in, double-click to see all; keys + − ← → 0."),
        ),
      );
      this.panels = make("div.panels", {
        tabindex: "0",
        role: "group",
        "aria-label":
          `Charts over time of group ${printable(group.group_id)}; ` +
          "plus and minus zoom, arrow keys move, 0 shows all",
      });
      this.cursor = make("div.cursor", { hidden: true });
      this.chosen = make("div.chosen", { hidden: true });
      whole.append(this.panels);
      this.listen();
      this.width = 0;
      new ResizeObserver(() => this.fit()).observe(this.panels);
    }

    /** Finds from when to when the group has something to show. */
    extent() {
      const begins = [];
      const add = (value) => {
        if (value !== null && value !== undefined) begins.push(value);
      };
      for (const s of this.rows.states) {
        add(s.started_at);
        add(s.ended_at);
      }
      for (const o of this.rows.offsets) {
        add(o.first_commit_at);
        add(o.last_commit_at);
      }
      for (const m of this.rows.members) {
        add(m.joined_at);
        add(m.left_at);
      }
      for (const l of this.rows.lag) add(l.sampled_at);
      const end = data.as_of;
      add(end);
      let first = begins.reduce((a, b) => Math.min(a, b), Infinity);
      first = Math.max(first, end - data.window_ms);
      const last = begins.reduce((a, b) => Math.max(a, b), first + 1000);
      const margin = Math.max(500, (last - first) * 0.01);
      return [first - margin, last + margin];
    }

    /** Lists what was found: the worst of each kind, the others of the kind behind it. */
    listFound() {
      const found = this.rows.anomalies;
      if (!found.length) return make("p.found", {}, "Nothing wrong was found.");
      const kinds = new Map();
      for (const a of found) kinds.set(a.kind, [...(kinds.get(a.kind) || []), a]);
      return make(
        "ul.found",
        { "aria-label": "Anomalies of the group" },
        [...kinds.values()].map(([first, ...others]) => {
          const more = others.length
            ? make(
                "details",
                {},
                make("summary", {}, `${number(others.length)} more of the kind`),
                make(
                  "ul",
                  {},
                  others.slice(0, 40).map((a) => make("li", {}, this.sentence(a))),
                  others.length > 40 ? make("li.soft", {}, `and ${number(others.length - 40)} more`) : null,
                ),
              )
            : null;
          return make("li", {}, this.sentence(first), " ", more);
        }),
      );
    }

    sentence(a) {
      const there = make(
        "button",
        { type: "button", "aria-label": `Zoom to this ${spoken(a.kind)} in the charts` },
        "zoom to it",
      );
      there.addEventListener("click", () => {
        const end = a.ended_at ?? data.as_of;
        const margin = Math.max(1000, (end - a.started_at) * 0.1);
        this.set([a.started_at - margin, end + margin]);
      });
      const lines = (text) => {
        try {
          return Object.entries(JSON.parse(text))
            .map(([k, v]) => `${k}: ${typeof v === "object" ? JSON.stringify(v) : v}`)
            .join("\n");
        } catch {
          return text; // cut short
        }
      };
      const proof =
        a.first_record_offset === null
          ? ""
          : `\nrecords: ${a.first_record_partition}/${a.first_record_offset} to ` +
            `${a.last_record_partition}/${a.last_record_offset} (partition/offset)`;
      const evidence = make(
        "details",
        {},
        make("summary", {}, "evidence"),
        make("pre", {}, printableLines(`${lines(a.evidence)}${proof}\nthresholds: ${a.thresholds}`)),
      );
      return [
        badge(a.severity),
        " ",
        make("span.kind", {}, spoken(a.kind)),
        a.label ? ` (${printable(spoken(a.label))})` : "",
        ": ",
        printable(a.summary),
        " ",
        make(
          "span.soft.when",
          {},
          time(a.started_at),
          a.ended_at === null ? "" : ` for ${lasted(a) || "0 s"}`,
          a.is_open ? ", open" : "",
        ),
        " ",
        there,
        " ",
        evidence,
      ];
    }

    // What each chart is made of: [name, title, legend, rows, tips, columns of its table, text alternative, remark].
    parts() {
      const zoned = (ms) => (ms === null || ms === undefined ? "" : `${clock(ms, "ms")} ${zoneName()}`);
      const asOf = data.as_of;
      const parts = [];
      const left = (name) => {
        const out = this.group.panels[name].count - this.rows[name].length;
        return out > 0
          ? `The oldest ${number(out)} of ${number(this.group.panels[name].count)} rows are left out.`
          : "";
      };

      if (this.rows.anomalies.length) {
        const kinds = new Set();
        const rows = this.rows.anomalies.slice(0, 200).map((a) => {
          const shade = colour(`${a.severity}-fill`);
          kinds.add(a.kind);
          return {
            ...a,
            anomaly: spoken(a.kind),
            begin: a.started_at,
            end: a.ended_at ?? asOf,
            colour: shade,
            stroke: shade,
            opacity: 0.55,
          };
        });
        parts.push({
          name: "anomalies",
          title: "Anomalies",
          legend: HEALTH.slice(0, 3)
            .filter((h) => rows.some((r) => r.severity === h))
            .map((h) => [h, colour(`${h}-fill`)]),
          rows,
          tips: (a) => [
            `${spoken(a.kind)} (${a.severity})`,
            [
              ["", a.summary],
              ["subject", a.subject],
              ["label", a.label && spoken(a.label)],
              ["from", zoned(a.started_at)],
              ["to", zoned(a.ended_at)],
            ],
          ],
          text:
            `${many(rows.length, "anomaly", "anomalies")} of ${many(kinds.size, "kind")}; ` +
            "the list above has each as text",
        });
      }

      const seen = Object.keys(STATES).filter((name) => this.rows.states.some((s) => s.state === name));
      const states = this.rows.states.map((s) => {
        const shade = colour(STATES[s.state] || "dead");
        const isBounded = s.evidence === "bounded";
        const isQuiet = s.state === "Stable" || s.state === "Empty";
        return {
          ...s,
          ended_at: s.ended_at ?? asOf,
          is_open: s.ended_at === null,
          colour: shade,
          stroke: isQuiet ? "transparent" : shade,
          bound_from: isBounded ? (s.started_at_min ?? s.started_at) : s.started_at,
          bound_to: isBounded ? s.started_at_max : s.started_at,
          bounds: isBounded ? colour("bounds") : "transparent",
          best: isBounded ? colour("ink") : "transparent",
        };
      });
      const spent = new Map();
      for (const s of states) spent.set(s.state, (spent.get(s.state) || 0) + s.ended_at - s.started_at);
      const bounded = states.filter((s) => s.evidence === "bounded").length;
      parts.push({
        name: "states",
        title: "States",
        rows: states,
        legend: [
          ...seen.map((s) => [s, colour(STATES[s] || "dead")]),
          ...(bounded ? [["below: a start is certain to lie in the bar; tick: best estimate", colour("bounds")]] : []),
        ],
        tips: (s) => [
          s.state,
          [
            ["generation", s.generation],
            ["from", zoned(s.started_at)],
            ...(s.evidence === "bounded"
              ? [
                  ["not before", s.started_at_min === null ? "unknown" : zoned(s.started_at_min)],
                  ["not after", zoned(s.started_at_max)],
                ]
              : []),
            ["to", s.is_open ? "still" : zoned(s.ended_at)],
            ["lasted", duration(s.ended_at - s.started_at)],
            ["members", s.member_count],
            ["evidence", s.evidence],
          ],
        ],
        table: [
          ["state", (s) => s.state],
          ["generation", (s) => s.generation, { number: true }],
          ["from", (s) => s.started_at, { when: "ms" }],
          ["not before", (s) => s.started_at_min, { when: "ms" }],
          ["not after", (s) => s.started_at_max, { when: "ms" }],
          [
            "lasted",
            (s) => s.ended_at - s.started_at,
            { number: true, cell: (s) => duration(s.ended_at - s.started_at) },
          ],
          ["members", (s) => s.member_count, { number: true }],
          ["evidence", (s) => s.evidence],
        ],
        text: [...spent]
          .sort((a, b) => b[1] - a[1])
          .map(([s, ms]) => `${s} ${duration(ms)}`)
          .join(", "),
        remark: left("states"),
      });

      const generations = this.rows.generations
        .filter((g) => g.join_started_at !== null && g.rebalance_ms !== null)
        .map((g) => ({
          ...g,
          seconds: g.rebalance_ms / 1000,
          colour: CAUSES[g.cause] || REST,
          shape: g.aborted_generations > 0 ? "triangle-up" : "circle",
        }));
      if (generations.length) {
        const causes = new Map();
        for (const g of generations) causes.set(g.cause, (causes.get(g.cause) || 0) + 1);
        const ordered = [...causes].sort((a, b) => b[1] - a[1]);
        const lengths = generations.map((g) => g.rebalance_ms).sort((a, b) => a - b);
        const aborted = generations.filter((g) => g.aborted_generations > 0).length;
        parts.push({
          name: "generations",
          title: "Rebalances, by seconds and cause",
          rows: generations,
          legend: [
            ...ordered.map(([cause, n]) => [`${spoken(cause)} ${number(n)}`, CAUSES[cause] || REST]),
            ...(aborted ? [[`▲ after aborted ones ${number(aborted)}`, "transparent"]] : []),
          ],
          tips: (g) => [
            `generation ${g.generation}: ${spoken(g.cause ?? "unknown")}`,
            [
              ["why", g.cause_detail],
              ["began", zoned(g.join_started_at)],
              ["took", duration(g.rebalance_ms)],
              ["members", g.member_count],
              ["joined", g.joined],
              ["left", g.left],
              ["replaced", g.replaced],
              ["moved partitions", g.moved_partitions],
              ["aborted before", g.aborted_generations || ""],
              ["assignor", g.protocol],
              ["leader", g.leader_client_id],
            ],
          ],
          table: [
            ["generation", (g) => g.generation, { number: true }],
            ["began", (g) => g.join_started_at, { when: "ms" }],
            ["took", (g) => g.rebalance_ms, { number: true, cell: (g) => duration(g.rebalance_ms) }],
            ["cause", (g) => spoken(g.cause)],
            ["why", (g) => g.cause_detail],
            ["members", (g) => g.member_count, { number: true }],
            ["moved partitions", (g) => g.moved_partitions, { number: true }],
            ["aborted before", (g) => g.aborted_generations, { number: true }],
          ],
          text:
            `${many(generations.length, "rebalance")}, median ${duration(lengths[lengths.length >> 1])}, ` +
            `longest ${duration(lengths.at(-1))}; most often: ${spoken(ordered[0][0])}`,
          remark: left("generations"),
        });
      }

      // One lane for each name; names of several hosts get a lane for each host.
      const hosts = new Set(this.rows.members.map((m) => m.client_host));
      const laneOf = (row) =>
        hosts.size > 1 ? `${printable(whoIs(row))} @ ${bare(row.client_host)}` : printable(whoIs(row));
      const sessions = new Map();
      for (const m of this.rows.members) sessions.set(laneOf(m), (sessions.get(laneOf(m)) || 0) + 1);
      const busiest = new Set(
        [...sessions]
          .sort((a, b) => b[1] - a[1])
          .slice(0, LANES)
          .map(([lane]) => lane),
      );
      const shades = new Map();
      for (const lane of [...busiest].sort((a, b) => a.localeCompare(b, "en", { numeric: true })))
        shades.set(lane, PALETTE[shades.size % PALETTE.length]);
      const shadeOf = (lane) => shades.get(lane) || REST;
      const members = [];
      for (const lane of shades.keys()) {
        for (const m of this.rows.members) {
          if (laneOf(m) !== lane) continue;
          const gone = m.left_at ?? asOf;
          const sure = m.left_at_min ?? gone;
          const bar = { ...m, member: lane, colour: shadeOf(lane), stroke: "transparent" };
          if (m.joined_at_min !== null && m.joined_at_min < m.joined_at)
            members.push({ ...bar, begin: m.joined_at_min, end: m.joined_at, opacity: 0.3 });
          if (sure < gone) members.push({ ...bar, begin: Math.max(sure, m.joined_at), end: gone, opacity: 0.3 });
          members.push({
            ...bar,
            begin: m.joined_at,
            end: Math.max(sure, m.joined_at),
            opacity: 1,
            stroke: shadeOf(lane),
          });
        }
      }
      if (members.length) {
        const where = hosts.size === 1 ? `, all on ${bare([...hosts][0])}` : `, on ${many(hosts.size, "host")}`;
        const more = sessions.size - busiest.size;
        const returning = [...sessions].filter(([, n]) => n > 2).sort((a, b) => b[1] - a[1]);
        parts.push({
          name: "members",
          title: "Members",
          legend: [["faint: may have been a member", REST]],
          rows: members,
          tips: (m) => [
            printable(whoIs(m)),
            [
              ["host", bare(m.client_host)],
              ["member id", m.member_id],
              ["instance id", m.group_instance_id],
              ["member from", zoned(m.joined_at)],
              ["not before", m.joined_at_min === m.joined_at ? "" : zoned(m.joined_at_min)],
              ["to", m.left_at === null ? "still" : zoned(m.left_at)],
              ["end", m.end_cause && spoken(m.end_cause)],
              ["generations", `${m.first_generation} to ${m.last_generation}`],
            ],
          ],
          tableRows: this.rows.members,
          table: [
            ["client", (m) => whoIs(m)],
            ["host", (m) => bare(m.client_host)],
            ["from", (m) => m.joined_at, { when: "ms" }],
            ["to", (m) => m.left_at, { when: "ms" }],
            [
              "lasted",
              (m) => (m.left_at ?? asOf) - m.joined_at,
              { number: true, cell: (m) => duration((m.left_at ?? asOf) - m.joined_at) },
            ],
            ["end", (m) => (m.end_cause ? spoken(m.end_cause) : "")],
            [
              "generations",
              (m) => m.first_generation,
              { cell: (m) => `${m.first_generation} to ${m.last_generation}` },
            ],
            ["member id", (m) => m.member_id],
          ],
          text: `${many(sessions.size, "client")}, ${many(this.rows.members.length, "session")}${printable(where)}${
            returning.length
              ? `; came back most: ${returning
                  .slice(0, 3)
                  .map(([lane, n]) => `${lane} ${n} sessions`)
                  .join(", ")}`
              : ""
          }`,
          remark: [
            left("members"),
            more > 0 ? `${many(more, "client")} with the fewest sessions have no lane.` : "",
          ].join(" "),
        });
      }

      const partitionOf = (row) => `${printable(row.topic ?? "?")}/${row.topic_partition ?? "?"}`;
      const busiestPartitions = (rows) => {
        const n = new Map();
        for (const row of rows) n.set(partitionOf(row), (n.get(partitionOf(row)) || 0) + 1);
        const kept = [...n]
          .sort((a, b) => b[1] - a[1])
          .slice(0, LANES)
          .map(([lane]) => lane)
          .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
        return [kept, n.size - kept.length];
      };
      if (this.rows.owners.length) {
        const [lanes, more] = busiestPartitions(this.rows.owners);
        const kept = new Set(lanes);
        const at = new Map(lanes.map((lane, n) => [lane, n]));
        const owners = this.rows.owners
          .filter((o) => kept.has(partitionOf(o)))
          .map((o) => ({
            ...o,
            partition: partitionOf(o),
            begin: o.valid_from,
            end: o.valid_to ?? asOf,
            colour: shadeOf(laneOf(o)),
            stroke: "transparent",
            opacity: 1,
          }))
          .sort((a, b) => at.get(a.partition) - at.get(b.partition) || a.begin - b.begin);
        parts.push({
          name: "owners",
          title: "Owners of partitions",
          legend: [...new Set(owners.map((o) => laneOf(o)))]
            .sort((a, b) => a.localeCompare(b, "en", { numeric: true }))
            .slice(0, 12)
            .map((lane) => [lane, shadeOf(lane)]),
          rows: owners,
          tips: (o) => [
            o.partition,
            [
              ["owner", whoIs(o)],
              ["host", bare(o.client_host)],
              ["generation", o.generation],
              ["from", zoned(o.valid_from)],
              ["to", o.valid_to === null ? "still" : zoned(o.valid_to)],
              ["for", duration(o.end - o.begin)],
            ],
          ],
          table: [
            ["partition", (o) => o.partition],
            ["owner", (o) => whoIs(o)],
            ["host", (o) => bare(o.client_host)],
            ["from", (o) => o.valid_from, { when: "ms" }],
            ["to", (o) => o.valid_to, { when: "ms" }],
            ["generation", (o) => o.generation, { number: true }],
          ],
          text: `${many(lanes.length, "partition")}; ${many(owners.length, "time")} that a member owned one`,
          remark: [
            left("owners"),
            more > 0 ? `${many(more, "partition")} with the fewest owners have no lane.` : "",
          ].join(" "),
        });
      }

      if (this.rows.offsets.length) {
        const [lanes, more] = busiestPartitions(this.rows.offsets);
        const at = new Map(lanes.map((lane, n) => [lane, n]));
        const rate = (o) => o.progressed_offsets / Math.max(1, (o.last_commit_at - o.first_commit_at) / 1000);
        const kept = this.rows.offsets.filter((o) => at.has(partitionOf(o)) && o.first_commit_at !== null);
        const top = Math.max(1e-9, ...kept.map(rate));
        const offsets = kept
          .map((o) => {
            const shade = o.progressed_offsets
              ? between(colour("slow"), colour("fast"), Math.sqrt(rate(o) / top))
              : colour("idle");
            return {
              ...o,
              partition: partitionOf(o),
              begin: o.first_commit_at,
              end: o.last_commit_at,
              sign: o.rewinds ? "↩" : "",
              colour: shade,
              stroke: shade,
              on: colour(o.progressed_offsets && rate(o) / top > 0.25 ? "card" : "ink"),
              rate: rate(o),
            };
          })
          .sort((a, b) => at.get(a.partition) - at.get(b.partition) || a.begin - b.begin);
        const rewinds = offsets.reduce((n, o) => n + o.rewinds, 0);
        parts.push({
          name: "offsets",
          title: "Commits, by partition and hour",
          rows: offsets,
          legend: [
            ["slower", colour("slow")],
            [`faster (up to ${number(Number(top.toPrecision(2)))} offsets/s)`, colour("fast")],
            ...(offsets.some((o) => !o.progressed_offsets) ? [["no progress", colour("idle")]] : []),
            ...(rewinds ? [[`↩ an hour with rewinds (${number(rewinds)})`, "transparent"]] : []),
          ],
          tips: (o) => [
            o.partition,
            [
              ["first commit", zoned(o.first_commit_at)],
              ["last commit", zoned(o.last_commit_at)],
              [
                "offsets",
                `${number(o.first_committed_offset)} to ` +
                  (o.last_committed_offset === null ? "deleted" : number(o.last_committed_offset)),
              ],
              ["commits", number(o.commits)],
              ["offsets per second", Number(o.rate.toPrecision(3))],
              ["rewinds", o.rewinds ? `${number(o.rewinds)}, by ${number(o.rewound_offsets)} offsets` : ""],
              ["jumps", o.jumps || ""],
              ["without progress", o.no_progress_commits || ""],
              ["deletions", o.tombstones || ""],
            ],
          ],
          table: [
            ["partition", (o) => o.partition],
            ["first commit", (o) => o.first_commit_at, { when: "s" }],
            ["last commit", (o) => o.last_commit_at, { when: "s" }],
            ["from offset", (o) => o.first_committed_offset, { number: true }],
            ["to offset", (o) => o.last_committed_offset, { number: true }],
            ["commits", (o) => o.commits, { number: true }],
            ["rewinds", (o) => o.rewinds, { number: true }],
            ["jumps", (o) => o.jumps, { number: true }],
            ["without progress", (o) => o.no_progress_commits, { number: true }],
          ],
          text:
            `${many(lanes.length, "partition")}, ${number(offsets.reduce((n, o) => n + o.commits, 0))} commits, ` +
            many(rewinds, "rewind"),
          remark: [
            left("offsets"),
            more > 0 ? `${many(more, "partition")} with the fewest hours of commits have no lane.` : "",
          ].join(" "),
        });
      }

      const lag = this.rows.lag
        .filter((l) => l.lag !== null)
        .map((l) => ({
          ...l,
          line: colour("soft"),
          colour: colour({ OK: "ok-fill", WARN: "warning-fill" }[l.status] || "critical-fill"),
        }));
      if (lag.length) {
        parts.push({
          name: "lag",
          title: "Lag: records behind, all partitions",
          legend: [
            ["OK", colour("ok-fill")],
            ["WARN", colour("warning-fill")],
            ["STOP, STALL or REWIND", colour("critical-fill")],
          ],
          rows: lag,
          tips: (l) => [
            `${number(l.lag)} records behind`,
            [
              ["at", zoned(l.sampled_at)],
              ["oldest", l.lag_seconds === null ? "" : duration(l.lag_seconds * 1000)],
              ["worst status", l.status],
              ["partitions", l.partitions],
            ],
          ],
          table: [
            ["sampled", (l) => l.sampled_at, { when: "s" }],
            ["lag", (l) => l.lag, { number: true }],
            ["oldest (s)", (l) => l.lag_seconds, { number: true }],
            ["worst status", (l) => l.status],
          ],
          text:
            `${many(lag.length, "sample")}, newest ${number(lag.at(-1).lag)} records behind, ` +
            `most ${number(Math.max(...lag.map((l) => l.lag)))}`,
          remark: left("lag"),
        });
      }
      return parts;
    }

    async draw() {
      const turn = (this.turn = (this.turn || 0) + 1);
      for (const view of this.views) view.finalize();
      this.views = [];
      this.panels.replaceChildren(this.cursor, this.chosen);
      this.width = plotWidthOf(this.panels);
      for (const part of this.parts()) {
        const plot = make("div.plot", {
          role: "img",
          "aria-label": `${part.title}: ${part.text}. ${part.remark || ""}`,
        });
        const caption = make("figcaption", {}, make("h4", {}, part.title), make("span", {}, part.text));
        const remark = (part.remark || "").trim();
        const figure = make(
          "figure",
          { "data-chart": part.name },
          caption,
          legend(part.legend),
          remark ? make("p.remark", {}, remark) : null,
          plot,
        );
        this.panels.append(figure);
        const view = await draw(plot, part.name, part.rows, this.span, part.tips);
        if (turn !== this.turn) {
          view.finalize();
          return;
        }
        this.views.push(view);
        if (part.table) {
          figure.append(this.tableOf(part, caption));
        }
      }
      this.tell();
    }

    tableOf(part, caption) {
      const target = make("div", { hidden: true });
      const button = make(
        "button.as-table",
        { type: "button", "aria-expanded": "false", "aria-label": `${part.title}: as a table` },
        "as a table",
      );
      button.addEventListener("click", () => {
        if (!target.children.length) {
          target.append(
            table(part.table, part.tableRows || part.rows, {
              caption: (n, shown) =>
                `${part.title} of ${printable(this.id)}: ${part.text}` +
                (shown < n ? `; ${number(shown)} rows shown` : ""),
              step: 100,
              sortable: true,
            }).whole,
          );
          target.firstChild.className = "rows";
        }
        target.hidden = !target.hidden;
        button.setAttribute("aria-expanded", String(!target.hidden));
      });
      caption.append(button);
      return target;
    }

    tell() {
      this.range.replaceChildren(
        time(this.span[0], "ms"),
        " – ",
        time(this.span[1], "ms"),
        " ",
        zoneLabel(),
        ` (${duration(this.span[1] - this.span[0])})`,
      );
    }

    set([from, to]) {
      const [first, last] = this.full;
      const length = Math.min(Math.max(to - from, 200), last - first);
      const begin = Math.min(Math.max(from, first), last - length);
      this.span = [begin, begin + length];
      for (const view of this.views) view.signal("span", this.span).runAsync();
      this.tell();
      hideTip();
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

    fit() {
      const width = plotWidthOf(this.panels);
      if (!this.views.length || width === this.width || !this.panels.clientWidth) return;
      this.width = width;
      for (const view of this.views) view.width(width).runAsync();
    }

    listen() {
      const left = () => this.panels.querySelector(".plot").offsetLeft + LEFT;
      const shareAt = (x) => (x - this.panels.getBoundingClientRect().left - left()) / this.width;
      const inside = (share) => Math.min(1, Math.max(0, share));
      const timeAt = (share) => this.span[0] + (this.span[1] - this.span[0]) * share;
      let from = null;
      this.panels.addEventListener("pointerdown", (event) => {
        const share = shareAt(event.clientX);
        if (
          event.button !== 0 ||
          event.pointerType === "touch" ||
          !event.target.closest(".plot") ||
          share < 0 ||
          share > 1
        )
          return;
        from = share;
        event.preventDefault();
        this.panels.focus({ preventScroll: true });
      });
      addEventListener("pointermove", (event) => {
        if (!this.panels.isConnected || !this.panels.clientWidth) return;
        const share = shareAt(event.clientX);
        if (from !== null) {
          const [a, b] = [from, inside(share)].sort((x, y) => x - y);
          this.chosen.hidden = (b - a) * this.width < 4;
          this.chosen.style.left = `${left() + a * this.width}px`;
          this.chosen.style.width = `${(b - a) * this.width}px`;
          hideTip();
        }
        const isOver = this.panels.contains(event.target) && event.target.closest(".plot") && share >= 0 && share <= 1;
        this.cursor.hidden = !isOver;
        if (isOver) this.cursor.style.left = `${left() + share * this.width}px`;
        else if (this.panels.contains(event.target)) hideTip();
      });
      addEventListener("pointerup", (event) => {
        if (from === null) return;
        const [a, b] = [from, inside(shareAt(event.clientX))].sort((x, y) => x - y);
        from = null;
        this.chosen.hidden = true;
        if ((b - a) * this.width >= 4) this.set([timeAt(a), timeAt(b)]);
      });
      this.panels.addEventListener("dblclick", (event) => {
        if (event.target.closest(".plot")) this.set(this.full);
      });
      this.panels.addEventListener(
        "wheel",
        (event) => {
          if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
          event.preventDefault();
          this.zoom(event.deltaY > 0 ? 1.25 : 0.8, inside(shareAt(event.clientX)));
        },
        { passive: false },
      );
      this.panels.addEventListener("pointerleave", hideTip);
      this.panels.addEventListener("keydown", (event) => {
        if (event.target !== this.panels || event.ctrlKey || event.metaKey || event.altKey) return;
        const acts = {
          "+": () => this.zoom(0.5),
          "=": () => this.zoom(0.5),
          "-": () => this.zoom(2),
          ArrowLeft: () => this.pan(-0.25),
          ArrowRight: () => this.pan(0.25),
          0: () => this.set(this.full),
          Home: () => this.set(this.full),
        };
        if (!(event.key in acts)) return;
        event.preventDefault();
        acts[event.key]();
      });
    }
  }
  const plotWidthOf = (panels) => Math.max(160, panels.clientWidth - 2 * 13.6 - LEFT - RIGHT);
  const printableLines = (text) => String(text).split("\n").map(printable).join("\n");

  // -- settings -----------------------------------------------------------------------------------

  async function redraw() {
    known = {};
    showTimes();
    await Promise.all([drawFront(), ...[...opened.values()].map((shown) => shown.draw())]);
  }

  function settings() {
    const zones = byId("zone");
    zones.append(
      make("option", { value: "utc" }, "UTC"),
      make("option", { value: "local" }, `${localZone} (this browser)`),
    );
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

  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch (error) {
      if (error instanceof URIError) return text; // somebody has typed it
      throw error;
    }
  }

  /** Open the group that the address asks for, and tell whether it asks for one. */
  function follow() {
    const found = location.hash.match(/^#group-(\d+)$/);
    if (found) open(Number(found[1]));
    // Alerts name the group: they are posted before it is known which groups the page shows.
    const named = location.hash.match(/^#group=(.*)$/);
    if (named) {
      const at = shownAt.get(decoded(named[1]));
      if (at !== undefined) open(at);
      byId(at === undefined ? "anomalies" : `group-${at}`).scrollIntoView();
    }
    return Boolean(found || named);
  }

  settings();
  tellFront();
  listAnomalies();
  listGroups();
  details();
  tellQuality();
  addEventListener("hashchange", follow);
  addEventListener("resize", () => {
    if (frontView) frontView.width(plotWidth(document.querySelector("#rebalances .plot"))).runAsync();
  });
  drawFront().then(() => {
    if (!follow() && data.shown.length) open(0);
    document.documentElement.dataset.ready = "true";
  });
})();
