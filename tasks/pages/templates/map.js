for (const map of document.querySelectorAll(".map")) {
  const { levels } = JSON.parse(map.querySelector("script").textContent);
  const [level, view, place] = map.querySelectorAll("select");
  const outlines = map.querySelectorAll(".place");
  const fill = (field, labels) => {
    field.replaceChildren(...labels.map((label, each) => new Option(label, each)));
  };
  const cell = (tag, text) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (tag === "th") made.scope = "row";
    else made.className = "number";
    return made;
  };
  const mark = () => {
    const own = levels[level.value], shown = own.views[view.value];
    outlines.forEach((outline, each) => {
      const chosen = place.value !== "" && own.within[each] === Number(place.value);
      outline.classList.toggle("marked", chosen);
      if (chosen) outline.parentNode.append(outline);  // above its neighbours
    });
    map.querySelector("output").textContent = place.value === "" ? ""
      : `${own.places[place.value]}: ${shown.values[place.value]}, 95 % interval ${shown.intervals[place.value]}`;
  };
  const show = () => {
    const own = levels[level.value], shown = own.views[view.value];
    outlines.forEach((outline, each) => {
      const at = own.within[each], shade = shown.shades[at];
      outline.setAttribute("class", `place ${shade === "-" ? "unknown" : `s${shade}`}`);
      outline.classList.toggle("hatched", shown.hatched[at] === "1");
      outline.querySelector("title").textContent =
        `${own.places[at]}: ${shown.values[at]} (${shown.intervals[at]})`;
    });
    map.querySelector(".shown strong").textContent = shown.words;
    map.querySelector(".shown span").textContent = own.name;
    map.querySelector("svg").setAttribute("aria-label",
      `Map: ${shown.words}, by ${own.name}. The table below has the same figures.`);
    const items = [...map.querySelectorAll(".legend li")];
    const last = items.pop();
    items.forEach(item => item.remove());
    shown.legend.forEach((range, shade) => {
      const item = document.createElement("li"), swatch = document.createElement("span");
      swatch.className = `swatch s${shade}`;
      item.append(swatch, range);
      last.before(item);
    });
    const [first, second] = map.querySelectorAll("thead th");
    first.textContent = own.name;
    second.textContent = shown.words;
    map.querySelector("tbody").replaceChildren(...own.places.map((name, at) => {
      const row = document.createElement("tr");
      row.append(cell("th", name), cell("td", shown.values[at]), cell("td", shown.intervals[at]));
      return row;
    }));
    mark();
  };
  const choose = () => {
    const own = levels[level.value], before = view.selectedOptions[0]?.textContent;
    fill(view, own.views.map(each => each.label));
    view.value = Math.max(0, own.views.findIndex(each => each.label === before));
    fill(place, own.places);
    place.prepend(new Option("none", ""));
    place.value = "";
    show();
  };
  fill(level, levels.map(each => each.name));
  level.addEventListener("change", choose);
  view.addEventListener("change", show);
  place.addEventListener("change", mark);
  outlines.forEach((outline, each) => outline.addEventListener("click", () => {
    place.value = levels[level.value].within[each];
    mark();
  }));
  map.querySelector(".fields").hidden = false;
  choose();
}
