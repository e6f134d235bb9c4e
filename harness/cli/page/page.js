"use strict";
// A heading sorts its column: first with the largest number, or the first word, at the top. Rows without a
// value stay at the end either way.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th button").forEach((button, column) => {
    button.addEventListener("click", () => {
      const heading = button.parentElement;
      const number = button.dataset.kind === "number";
      const before = heading.getAttribute("aria-sort");
      const other = before === "ascending" ? "descending" : "ascending";
      const way = before ? other : number ? "descending" : "ascending";
      const sign = way === "ascending" ? 1 : -1;
      const rows = [...body.rows].map((row) => {
        const text = row.cells[column].textContent.trim();
        const value = number ? parseFloat(text) : text;
        return { row, value, none: number ? isNaN(value) : !text };
      });
      rows.sort((a, b) => {
        if (a.none || b.none) return a.none - b.none;
        return sign * (number ? a.value - b.value : a.value.localeCompare(b.value, "en", { numeric: true }));
      });
      for (const each of table.querySelectorAll("th")) each.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", way);
      body.append(...rows.map((each) => each.row));
    });
  });
}
// What a link leads to is opened, with all that it stands in.
function open() {
  let target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", open);
open();
