// Filter of the ledger. The state lives in the address after the #, so that a filtered ledger can be linked.
"use strict";

(() => {
  const form = document.getElementById("ledger-filter");
  const table = document.getElementById("ledger-table");
  if (!form || !table) return;

  const fields = Object.fromEntries(
    ["verdict", "part", "text"].map((name) => [name, document.getElementById(`ledger-${name}`)]),
  );
  const shown = document.getElementById("ledger-shown");
  const rows = [...table.querySelectorAll("tr[data-verdict]")];
  const bodies = [...table.tBodies];

  function apply() {
    const words = fields.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const { verdict, part, text } = row.dataset;
      const match =
        (!fields.verdict.value || verdict === fields.verdict.value) &&
        (!fields.part.value || part === fields.part.value) &&
        words.every((word) => text.includes(word));
      row.hidden = !match;
      count += match;
    }
    for (const body of bodies) body.hidden = !body.querySelector("tr[data-verdict]:not([hidden])");
    shown.textContent = `${count} of ${rows.length} claims shown`;
  }

  function remember() {
    const state = new URLSearchParams();
    for (const [name, field] of Object.entries(fields)) if (field.value) state.set(name, field.value);
    history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
  }

  function recall() {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) {  // the anchor of one claim: show everything, so that it is there
      form.reset();
    } else {
      const state = new URLSearchParams(hash || location.search);
      for (const [name, field] of Object.entries(fields)) {
        field.value = state.get(name) ?? "";
        if (field.selectedIndex === -1) field.value = "";  // a value that no option has
      }
    }
    apply();
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { apply(); remember(); });
  form.addEventListener("reset", () => setTimeout(() => { apply(); remember(); }));
  window.addEventListener("hashchange", recall);
  recall();
})();
