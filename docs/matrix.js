// Filters for the table of every pair and route: by pair, by letter, and what a cell saw.
(() => {
  const NAMES = ["from", "to", "letter"];

  function choice(label, values, changed) {
    const box = document.createElement("label");
    const select = document.createElement("select");
    select.add(new Option("any", ""));
    values.forEach((value) => select.add(new Option(value, value)));
    select.addEventListener("change", changed);
    box.append(`${label} `, select);
    return [box, select];
  }

  function prepare(matrix) {
    const rows = [...matrix.querySelectorAll("tbody tr")];
    const column = (at) => [...new Set(rows.map((row) => row.cells[at].textContent))];
    const letters = (row) => [...row.cells].slice(3).map((cell) => cell.textContent);
    const count = document.createElement("span");
    const values = [column(0), column(1), [...new Set(rows.flatMap(letters))].sort()];

    function show() {
      const [from, to, letter] = selects.map((select) => select.value);
      const shown = rows.filter((row) => {
        const fits =
          (!from || row.cells[0].textContent === from) &&
          (!to || row.cells[1].textContent === to) &&
          (!letter || letters(row).includes(letter));
        row.hidden = !fits;
        return fits;
      });
      count.textContent = `${shown.length} of ${rows.length} routes`;
    }

    const made = NAMES.map((name, at) => choice(name, values[at], show));
    const selects = made.map(([, select]) => select);
    const bar = document.createElement("p");
    bar.className = "matrix-choices";
    bar.append(...made.map(([box]) => box), count);
    const seen = document.createElement("p");
    seen.className = "matrix-seen";
    seen.setAttribute("aria-live", "polite");
    matrix.before(bar, seen);
    matrix.addEventListener("click", (event) => {
      const cell = event.target.closest("td[title]");
      if (!cell) return;
      const [from, to, route] = [...cell.parentElement.cells].map((one) => one.textContent);
      seen.textContent = `${from} → ${to}, ${route}: ${cell.title || "nothing to say"}`;
    });
    show();
  }

  document.querySelectorAll(".matrix").forEach(prepare);
})();
