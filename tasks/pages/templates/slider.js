for (const slider of document.querySelectorAll(".slider")) {
  const range = slider.querySelector("input");
  const shown = slider.querySelector("output");
  const options = slider.querySelectorAll(".option");
  const show = () => {
    const place = Number(range.value);
    options.forEach((option, each) => { option.hidden = each !== place; });
    const label = options[place].dataset.label;
    shown.textContent = label;
    range.setAttribute("aria-valuetext", label);
  };
  range.addEventListener("input", show);
  show();
}
