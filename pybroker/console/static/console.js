// Keeps a page fresh: every two seconds, while somebody looks, its live part is fetched again.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");

async function refresh() {
  let trouble = "";
  try {
    const answer = await fetch(location.href);
    if (answer.redirected) {
      location.assign(answer.url);
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    if (!answer.ok) {
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
  if (address) live.querySelector(`a[href="${CSS.escape(address)}"]`)?.focus();
}

async function keepFresh() {
  if (!document.hidden) await refresh();
  setTimeout(keepFresh, 2000);
}

if (live) setTimeout(keepFresh, 2000);
