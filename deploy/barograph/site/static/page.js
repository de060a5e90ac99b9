// Refreshes parts marked data-live, applies the filter while it is typed, switches themes.

const REFRESH_MS = 5000;
const TYPING_MS = 200;

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

// Replaces only changed parts; keeps focus and scroll position.
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
  const request = ++latest;
  const lost = document.getElementById("lost");
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    // A slow response to an earlier request must not overwrite a later one.
    if (request === latest) replace(fresh);
  } catch {
    if (request === latest && lost && !lost.textContent) {
      lost.textContent = `No response since ${new Date().toLocaleTimeString()}; retrying.`;
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
      for (const [name, value] of [...query]) if (!value) query.delete(name);
      history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
      refresh();
    }, TYPING_MS);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
}

const live = document.querySelector("main [data-live]");
if (live) {
  setInterval(() => document.hidden || refresh(), REFRESH_MS);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
}
