// What makes the pages live: parts marked data-live are fetched again, a filter acts while it is typed, themes switch.

const EVERY = 5000;
const TYPING = 200;

const button = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
}

function nameTheme() {
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
}

button.addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();
button.hidden = false;

let latest = 0;

// Whoever is in a link or reads a part keeps their place: only what has changed is replaced, and the focus is put back.
function replace(fresh) {
  const focused = document.activeElement;
  const where = focused?.closest("[data-live]");
  const address = focused?.getAttribute("href");
  for (const old of document.querySelectorAll("[data-live]")) {
    const part = fresh.getElementById(old.id);
    if (part && part.innerHTML !== old.innerHTML) {
      const offset = old.querySelector(".wide")?.scrollLeft;
      old.innerHTML = part.innerHTML;
      old.className = part.className;
      if (offset) old.querySelector(".wide")?.scrollTo(offset, 0);
      if (old === where && address) {
        [...old.querySelectorAll("a")].find((link) => link.getAttribute("href") === address)?.focus();
      }
    }
  }
}

async function refresh() {
  const turn = ++latest;
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    // A slow answer to what was asked before must not overwrite a later one.
    if (turn === latest) replace(fresh);
  } catch {
    if (turn === latest && lost && !lost.textContent) {
      lost.textContent = `This page has not been answered since ${new Date().toLocaleTimeString()}; it goes on asking.`;
    }
  }
}

const form = document.querySelector("[data-filter]");
if (form) {
  let waiting = 0;
  form.querySelector("button").hidden = true;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const query = new URLSearchParams(new FormData(form));
      if (!query.get("filter")) query.delete("filter");
      history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
      refresh();
    }, TYPING);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
}

const live = document.querySelector("main [data-live]");
if (live) {
  setInterval(() => document.hidden || refresh(), EVERY);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
}
