// Keeps a page fresh: while somebody looks, its live part is fetched again. The server says how often: so that all
// open pages together cost the database little.
"use strict";

const live = document.getElementById("live");
const main = document.getElementById("main");
const connection = document.getElementById("connection");

async function refresh() {
  let trouble = "";
  try {
    const answer = await fetch(location.href, {headers: {"X-Console-Refresh": "yes"}});
    if (answer.redirected) {
      location.assign(answer.url);
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    main.dataset.wait = page.getElementById("main").dataset.wait;
    // What is not there any more is an answer.
    if (answer.status >= 500) {
      trouble = "No answer from the database; what is shown is old.";
    } else if (fresh) {
      show(fresh);
    }
  } catch {
    trouble = "The console can't be reached; what is shown is old.";
  }
  if (connection.textContent !== trouble) connection.textContent = trouble;
}

// Whoever reads with the keyboard keeps the link that has the focus; whoever selects keeps the text.
function show(fresh) {
  const held = document.activeElement;
  const address = live.contains(held) ? held.getAttribute("href") : null;
  if ((live.contains(held) && !address) || !getSelection().isCollapsed) return;
  live.replaceChildren(...fresh.childNodes);
  nameCells();
  if (address) live.querySelector(`a[href="${CSS.escape(address)}"]`)?.focus();
}

// On a narrow screen a row is a list, so each cell says its column.
function nameCells() {
  for (const table of document.querySelectorAll(".wide table")) {
    const columns = [...table.querySelectorAll("thead th")].map(one => one.textContent);
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.cells) if (cell.colSpan === 1) cell.dataset.label = columns[cell.cellIndex];
    }
  }
}

async function keepFresh() {
  if (!document.hidden) await refresh();
  setTimeout(keepFresh, pause());
}

function pause() {
  return 1000 * (Number(main.dataset.wait) || 2);
}

nameCells();
if (live) setTimeout(keepFresh, pause());
