// The explorer of a report: one, two or three columns of microdata as charts and figures.
//
// Its data stand beside it as JSON (tasks/products/explorer.py). Columns that were measured together
// have a table, and figures with intervals, as `statpress query` computes them; for others the
// synthetic records are counted, and no interval is claimed. A column is its place in the data, a
// group a list of places in ascending order, and what is counted of a table a weight for each code
// of each of its columns: 1 for the codes that count, else 0.

(() => {
  const MOST_FIGURES = 3000;

  // Figures

  const key = group => group.join();
  const sum = values => values.reduce((total, value) => total + value, 0);
  const product = (one, other) => one.reduce((total, value, k) => total + value * other[k], 0);
  const indicator = (size, codes) => Array.from({length: size}, (_, k) => +codes.includes(k));

  // The sum of the cells that the weights pick out.
  function total(cells, weights, axis = 0, start = 0) {
    if (axis === weights.length) return cells[start];
    const own = weights[axis];
    return own.reduce((found, weight, code) =>
      weight ? found + weight * total(cells, weights, axis + 1, start * own.length + code) : found, 0);
  }

  // The covariance of the noise of two sums over one table (mechanisms/marginals/residuals.py): over
  // the parts t of its columns, the variance of t's residual times, per column of size k,
  // <f, g> - sum f sum g / k within t, and sum f sum g / k^2 outside.
  function covariance(data, group, f, g) {
    let found = 0;
    for (let part = 0; part < 1 << group.length; part++) {
      const within = axis => part >> axis & 1;
      found += group.reduce((factor, _, axis) => {
        const k = f[axis].length, sums = sum(f[axis]) * sum(g[axis]);
        return factor * (within(axis) ? product(f[axis], g[axis]) - sums / k : sums / (k * k));
      }, data.variances[key(group.filter((_, axis) => within(axis)))]);
    }
    return found;
  }

  // The normal quantile for a denominator so many standard errors from 0 (estimates/fieller.py).
  function cautious(curve, significance) {
    const at = (significance - curve.from) / curve.step, last = curve.values.length - 1;
    if (!(at > 0)) return curve.values[0];
    if (at >= last) return curve.values[last];
    const low = Math.floor(at);
    return curve.values[low] + (at - low) * (curve.values[low + 1] - curve.values[low]);
  }

  // A quotient of two sums with Fieller's set; ends are infinite where the noise leaves it open.
  function quotient(data, group, above, below, top, bottom) {
    const value = top / bottom;
    if (!data.tables[key(group)]) return {value};
    const [tt, tb, bb] = [[above, above], [above, below], [below, below]]
      .map(([f, g]) => covariance(data, group, f, g));
    const z = bb > 0 ? cautious(data.curve, bottom / Math.sqrt(bb)) : data.quantile;
    const a = bottom ** 2 - z ** 2 * bb, b = top * bottom - z ** 2 * tb, c = top ** 2 - z ** 2 * tt;
    const reach = Math.sqrt(Math.max(b * b - a * c, 0));
    return bottom > 0 && a > 0
      ? {value, lower: (b - reach) / a, upper: (b + reach) / a}
      : {value, lower: -Infinity, upper: Infinity};
  }

  function count(data, group, weights, cells) {
    const value = total(cells, weights);
    if (!data.tables[key(group)]) return {value};
    const error = Math.sqrt(Math.max(covariance(data, group, weights, weights), 0));
    return {value, error, lower: value - data.quantile * error, upper: value + data.quantile * error};
  }

  // The table of a group, or else the synthetic records counted and scaled to all.
  function cellsOf(data, group) {
    const known = data.tables[key(group)];
    if (known) return known;
    const sizes = group.map(place => data.columns[place].values.length);
    const cells = new Float64Array(sizes.reduce((size, k) => size * k, 1));
    const records = group.map(place => data.records[place]);
    for (let row = 0; row < records[0].length; row++) {
      let cell = 0;
      for (let axis = 0; axis < group.length; axis++)
        cell = cell * sizes[axis] + records[axis].charCodeAt(row) - "?".charCodeAt(0);
      cells[cell] += data.scale;
    }
    return cells;
  }

  // Where the figures of a group are from, and the pairs that are to blame.
  function originOf(data, group) {
    if (data.tables[key(group)]) return {name: "measured", pairs: []};
    const pairs = group.flatMap((a, k) => group.slice(k + 1).map(b => [a, b]));
    for (const name of ["assumed", "elsewhere", "large"]) {
      const own = pairs.filter(pair => data.unmeasured[key(pair)] === name);
      if (own.length) return {name, pairs: own};
    }
    return {name: "pairs", pairs: []};
  }

  // Every figure of a choice: by the codes of all columns but the first, then of the first.
  function answer(data, {columns, where}) {
    const [shown, ...by] = columns;
    const group = [...new Set([...columns, ...(where ? [where.column] : [])])].sort((a, b) => a - b);
    const cells = cellsOf(data, group);
    const size = place => data.columns[place].values.length;
    const counted = data.columns[shown].order.filter(code => code !== data.columns[shown].missing);
    const weightsOf = codes => group.map(place => codes.has(place)
      ? indicator(size(place), codes.get(place))
      : Array(size(place)).fill(1));
    const among = (codes, own) => {
      const chosen = new Map(codes);
      if (where) chosen.set(where.column, [where.code]);
      if (own) chosen.set(shown, own);
      return weightsOf(chosen);
    };
    const sharesOf = codes => {
      const below = among(codes, counted), bottom = total(cells, below);
      return own => {
        const above = among(codes, [own]);
        return quotient(data, group, above, below, total(cells, above), bottom);
      };
    };
    const combinations = by.reduce((found, place) =>
      found.flatMap(codes => data.columns[place].order.map(code => [...codes, code])), [[]]);
    const figures = combinations.map(codes => {
      const fixed = codes.map((code, k) => [by[k], [code]]), shareOf = sharesOf(fixed);
      return {
        codes,
        cells: data.columns[shown].order.map(code => ({
          code,
          count: count(data, group, among(fixed, [code]), cells),
          share: counted.includes(code) ? shareOf(code) : null,
        })),
      };
    });
    const overall = new Map(counted.map(code => [code, sharesOf([])(code).value]));
    return {shown, by, where, counted, figures, overall, origin: originOf(data, group)};
  }

  // Words

  const numbers = digits => new Intl.NumberFormat(
    "en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
  const tenths = numbers(1);
  const records = value => tenths.format(value);
  const percent = value => Number.isFinite(value) ? `${tenths.format(100 * value)} %`
    : Number.isNaN(value) ? "–" : "not bounded";
  const isKnown = ({value, lower, upper}) =>
    Number.isFinite(value) && (lower === undefined || Number.isFinite(upper - lower));
  const label = (data, place, code) => data.columns[place].labels[code];

  const nameOf = ({name, title}) => title === name ? name : `${title} (${name})`;

  function titleOf(data, {columns, where}) {
    const [shown, ...by] = columns.map(place => data.columns[place].title);
    const grouped = by.length ? ` by ${by.join(" and ")}` : "";
    if (!where) return shown + grouped;
    const {title} = data.columns[where.column];
    return `${shown}${grouped}, where ${title} is ${label(data, where.column, where.code)}`;
  }

  const quoted = text => /^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

  function commandOf(data, {columns, where}) {
    const [shown, ...by] = columns.map(place => quoted(data.columns[place].name));
    const words = ["statpress query FOLDER --share", shown];
    if (by.length) words.push("--by", ...by);
    if (where) {
      const {name, values} = data.columns[where.column];
      words.push("--where", quoted(`${name}=${values[where.code]}`));
    }
    return words.join(" ");
  }

  // The address's fragment: cols=educ,happy&where=region:pacific, and in= where there are several.

  function fragmentOf(data, {columns, where}, several) {
    const names = columns.map(place => encodeURIComponent(data.columns[place].name));
    const parts = [`cols=${names.join()}`];
    if (where) {
      const {name, values} = data.columns[where.column];
      parts.push(`where=${encodeURIComponent(name)}:${encodeURIComponent(values[where.code])}`);
    }
    if (several) parts.push(`in=${encodeURIComponent(data.product)}`);
    return `#${parts.join("&")}`;
  }

  // A fragment's choice; null if it is for another explorer, or names nothing that is here.
  function choiceOf(data, fragment) {
    const decoded = text => { try { return decodeURIComponent(text); } catch { return text; } };
    const parts = new Map(fragment.slice(1).split("&").map(part => {
      const [name, ...rest] = part.split("=");
      return [name, rest.join("=")];
    }));
    if (!parts.has("cols") || decoded(parts.get("in") ?? data.product) !== data.product) return null;
    const placeOf = name => data.columns.findIndex(column => column.name === decoded(name));
    const columns = [...new Set(parts.get("cols").split(",").map(placeOf))].filter(k => k >= 0);
    if (!columns.length) return null;
    const [name, ...values] = (parts.get("where") ?? "").split(":");
    const column = placeOf(name);
    const code = column < 0 ? -1 : data.columns[column].values.indexOf(decoded(values.join(":")));
    const where = code < 0 || columns.includes(column) ? null : {column, code};
    return {columns: columns.slice(0, 3), where};
  }

  // Elements

  function element(tag, attributes = {}, ...children) {
    const made = tag in {svg: 0, line: 0, rect: 0, circle: 0}
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // A row of a chart: its label, the share with its interval on a common scale, and the figure.
  function row(text, share, {scale, reference, bars}) {
    const across = value => `${100 * Math.min(Math.max(value / scale, 0), 1)}%`;
    const measured = share.lower !== undefined;
    const upright = at => element("line", {class: "reference", x1: at, x2: at, y1: 0, y2: "100%"});
    const interval = () => element("line", {
      class: "interval", x1: across(share.lower), x2: across(share.upper), y1: "50%", y2: "50%"});
    const mark = () => bars
      ? element("rect", {x: 0, y: "22%", width: across(share.value), height: "56%"})
      : element("circle", {
        class: measured ? "" : "open", cx: across(share.value), cy: "50%", r: 4.5});
    const sign = reference === undefined || !measured ? ""
      : share.lower > reference ? "above" : share.upper < reference ? "below" : "";
    const marks = isKnown(share) ? [mark(), ...(measured ? [interval()] : [])] : [];
    const give = measured ? `± ${tenths.format(50 * (share.upper - share.lower))}` : "";
    const note = words => element("span", {class: "note"}, words);
    return element("div", {class: `row ${sign}`},
      element("span", {class: "name"}, text),
      element("svg", {"aria-hidden": "true"},
        ...(Number.isFinite(reference) ? [upright(across(reference))] : []), ...marks),
      element("span", {class: "figure"},
        ...(isKnown(share) ? [percent(share.value), " ", note(give)] : [note("too few records")])));
  }

  // A round figure that all shares and their intervals are below.
  const scaleOf = shares => {
    const most = Math.max(0, ...shares.filter(isKnown).map(share => share.upper ?? share.value));
    return [.02, .05, .1, .2, .3, .4, .5, .6, .8].find(end => most <= end) ?? 1;
  };

  // Rows of bars for one column; else a panel for each value of the first column, with a row for
  // each value of the second, and all of that for each value of the third.
  function chartOf(data, choice, found) {
    const {shown, by: [second, third], counted, overall, figures} = found;
    const shareOf = (figure, code) => figure.cells.find(cell => cell.code === code).share;
    const title = place => data.columns[place].title;
    const panel = (heading, rows) => element("div", {class: "panel"},
      ...(heading ? [element("p", {class: "panel-title"}, ...heading)] : []), ...rows);
    const ofAll = code => element("span", {class: "note"}, `${percent(overall.get(code))} of all`);
    const grid = (...panels) => element("div", {class: "panels"}, ...panels);
    const group = (...words) => element("p", {class: "group"}, ...words);

    const told = second !== undefined && counted.length === 2 ? counted.slice(1) : counted;
    const scale = scaleOf(figures.flatMap(figure => told.map(code => shareOf(figure, code))));
    const rowsOf = (own, code) => own.map(figure => row(label(data, second, figure.codes[0]),
      shareOf(figure, code), {scale, reference: overall.get(code)}));
    const within = code => figures.filter(figure => figure.codes[1] === code);
    const headingOf = code => [
      (told.length === 1 ? `${title(shown)}: ` : "") + label(data, shown, code), " ", ofAll(code)];
    const panelsOf = own => told.map(code => panel(headingOf(code), rowsOf(own, code)));

    const parts = () => {
      if (second === undefined)
        return [panel(null, counted.map(code =>
          row(label(data, shown, code), shareOf(figures[0], code), {scale, bars: true})))];
      if (third === undefined) return [grid(...panelsOf(figures))];
      const {order} = data.columns[third];
      if (told.length === 1)
        return [group(...headingOf(told[0])), grid(...order.map(code =>
          panel([label(data, third, code)], rowsOf(within(code), told[0]))))];
      return order.flatMap(code => [
        group(`${title(third)}: ${label(data, third, code)}`), grid(...panelsOf(within(code)))]);
    };
    const words = `Shares of ${titleOf(data, choice)}; the table below has the figures.`;
    return element("div", {class: "chart", role: "img", "aria-label": words}, ...parts());
  }

  function tableOf(data, choice, found) {
    const measured = found.origin.name === "measured";
    const names = [...found.by, found.shown].map(place => data.columns[place].name);
    const headings = [...names, "records", ...(measured ? ["standard error", "from", "to"] : []),
      "share", ...(measured ? ["share from", "share to"] : [])];
    const rows = found.figures.flatMap(({codes, cells}) => cells.map(({code, count, share}) => {
      const values = [...codes.map((each, k) => label(data, found.by[k], each)),
        label(data, found.shown, code)];
      const ends = measured ? [count.error, count.lower, count.upper].map(records) : [];
      const shares = share === null ? Array(measured ? 3 : 1).fill("–")
        : [share.value, ...(measured ? [share.lower, share.upper] : [])].map(percent);
      const figures = [records(count.value), ...ends, ...shares];
      const [first, ...others] = values;
      return element("tr", {}, element("th", {scope: "row"}, first),
        ...others.map(value => element("td", {}, value)),
        ...figures.map(figure => element("td", {class: "number"}, figure)));
    }));
    const head = element("tr", {}, ...headings.map((heading, k) =>
      element("th", {scope: "col", class: k < names.length ? "" : "number"}, heading)));
    const title = titleOf(data, choice), about = `Figures of ${title}`;
    return element("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": about},
      element("table", {}, element("caption", {}, title),
        element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  function originLine(data, {origin}) {
    const [name, words] = data.origins[origin.name];
    const pairs = origin.pairs.map(pair =>
      pair.map(place => data.columns[place].name).join(" and ")).join("; ");
    return element("p", {class: "origin"},
      element("strong", {}, name), ` ${words.replace("PAIRS", () => pairs)}`);
  }

  function legendOf(found) {
    if (!found.by.length) 
      return ["Shares are of the records that are not missing. Lines across are 95 % intervals."];
    const all = found.where ? "all records that meet the condition" : "all records";
    const from = "Shares are of the records of a row that are not missing. The upright line is the "
      + `share of ${all}. `;
    return found.origin.name === "measured"
      ? [from, "Lines across are 95 % intervals: ", element("span", {class: "key above"}, "blue"),
        " above the upright line, ", element("span", {class: "key below"}, "orange"),
        " below, grey across it."]
      : [from, "Open circles have no interval."];
  }

  // The explorer itself

  let made = 0;

  function explore(root, several) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const id = `explorer-${++made}`;
    const option = (value, text) => element("option", {value}, text);
    const columnOptions = () => data.columns.map((column, place) => option(place, nameOf(column)));
    const select = (name, text, ...options) => {
      const field = element("select", {id: `${id}-${name}`}, ...options);
      field.addEventListener("change", () => changed(name));
      return [field, element("div", {class: "field"},
        element("label", {for: field.id}, text), field)];
    };
    const [first, firstField] = select("first", "Show", ...columnOptions());
    const [second, secondField] = select("second", "by", option("", "nothing"), ...columnOptions());
    const [third, thirdField] = select("third", "and by", option("", "nothing"), ...columnOptions());
    const [column, columnField] = select("column", "only where", option("", "everything"),
      ...columnOptions());
    const [value, valueField] = select("value", "is");
    const view = element("figure", {class: "view"});
    const status = element("p", {class: "status", role: "status"});
    root.append(element("div", {class: "fields"}, firstField, secondField, thirdField, columnField,
      valueField), status, view);

    const chosen = field => field.value === "" ? null : Number(field.value);

    function choice() {
      const columns = [...new Set([first, second, third].map(chosen))].filter(k => k !== null);
      const where = chosen(column) === null ? null
        : {column: chosen(column), code: chosen(value)};
      return {columns, where};
    }

    function fill(place) {
      valueField.hidden = place === null;
      value.replaceChildren(...(place === null ? [] : data.columns[place].order.map(
        code => option(code, label(data, place, code)))));
    }

    // A column that is taken is not offered elsewhere.
    function offer() {
      const fields = [first, second, third, column];
      for (const field of fields) {
        const taken = fields.filter(other => other !== field).map(other => other.value);
        for (const each of field.options)
          each.disabled = each.value !== "" && taken.includes(each.value);
      }
      thirdField.hidden = second.value === "";
    }

    function set({columns, where}) {
      [first, second, third].forEach((field, k) => { field.value = columns[k] ?? ""; });
      column.value = where ? where.column : "";
      fill(where ? where.column : null);
      if (where) value.value = where.code;
      draw();
    }

    function changed(name) {
      if (name === "second" && second.value === "") {
        second.value = third.value;
        third.value = "";
      }
      if (name === "column") fill(chosen(column));
      draw();
      history.replaceState(null, "", fragmentOf(data, choice(), several));
    }

    function draw() {
      offer();
      const now = choice();
      const size = now.columns.reduce((all, place) => all * data.columns[place].values.length, 1);
      status.textContent = size > MOST_FIGURES
        ? `These columns have ${size.toLocaleString("en")} cells together, more than this page ` +
          "shows. Choose fewer, or ask statpress query."
        : "";
      if (size > MOST_FIGURES) return view.replaceChildren();
      const found = answer(data, now);
      view.replaceChildren(
        element("figcaption", {}, titleOf(data, now)),
        originLine(data, found),
        chartOf(data, now, found),
        element("p", {class: "note"}, ...legendOf(found)),
        element("details", {}, element("summary", {}, "The figures as a table"),
          tableOf(data, now, found)),
        element("p", {class: "note"},
          ...(found.origin.name === "measured"
            ? ["At a terminal: ", element("code", {}, commandOf(data, now)), ". "] : []),
          element("a", {href: fragmentOf(data, now, several)}, "Link to this view")));
    }

    // Whether the address is for this explorer.
    function follow() {
      const asked = choiceOf(data, location.hash);
      if (!asked) return false;
      set(asked);
      root.scrollIntoView();
      return true;
    }

    if (data.left.length)
      root.append(element("p", {class: "note"},
        `Not offered here, but by statpress query: ${data.left.join(", ")}.`));
    set(choiceOf(data, `#${root.dataset.start}`) ?? {columns: [0], where: null});
    return follow;
  }

  const roots = [...document.querySelectorAll(".explorer")];
  const explorers = roots.map(root => explore(root, roots.length > 1));
  const follow = () => explorers.some(each => each()); // the first that knows the columns
  follow();
  window.addEventListener("hashchange", follow);
  performance.mark("explorer");
})();
