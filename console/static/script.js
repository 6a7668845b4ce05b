"use strict";

// A link with the token behind the # signs in: that part is sent to nobody.
(() => {
  const begin = "#token=";
  if (!location.hash.startsWith(begin)) return;
  const token = decodeURIComponent(location.hash.slice(begin.length));
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.getElementById("login");
  if (!form) return;
  form.elements.token.value = token;
  form.requestSubmit();
})();

// / goes to the search, and 1 to 5 to the pages, unless somebody types.
const goesTo = (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.("input, textarea, select")) return null;
  return e.key === "/" ? document.querySelector(".search input") : document.querySelectorAll("nav a")[Number(e.key) - 1];
};
document.addEventListener("keydown", (e) => { if (e.key === "/" && goesTo(e)) e.preventDefault(); });
document.addEventListener("keyup", (e) => {
  const to = goesTo(e);
  if (to?.matches("a")) to.click();
  else to?.focus();
});

// Only the fields that belong to what is chosen are shown.
for (const form of document.querySelectorAll("form:has(.takes)")) {
  const choose = () => {
    const takes = form.querySelector("[name=as]:checked")?.dataset.takes ?? "";
    for (const field of form.querySelectorAll(".takes")) field.hidden = !takes || !field.classList.contains(takes);
  };
  form.addEventListener("change", choose);
  choose();
}

// become changes a node into another where it stands, so that the keyboard, what
// is selected and what is unfolded stay as they are.
const become = (node, next) => {
  if (node.nodeType !== next.nodeType || node.nodeName !== next.nodeName || (node.id ?? "") !== (next.id ?? "")) {
    node.replaceWith(document.importNode(next, true));
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.nodeValue !== next.nodeValue) node.nodeValue = next.nodeValue;
    return;
  }
  for (const { name, value } of next.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  for (const { name } of [...node.attributes]) if (name !== "open" && !next.hasAttribute(name)) node.removeAttribute(name);
  // Rows are known by their ids: those that are gone go, new ones come between.
  const stays = new Set([...next.childNodes].map((n) => n.id).filter(Boolean));
  for (const child of [...node.childNodes]) if (child.id && !stays.has(child.id)) child.remove();
  let at = node.firstChild;
  for (const child of next.childNodes) {
    const same = child.id && [...node.children].find((n) => n.id === child.id);
    if (child.id && !same) {
      node.insertBefore(document.importNode(child, true), at);
      continue;
    }
    if (same && same !== at) {
      node.insertBefore(same, at);
      at = same;
    }
    if (!at) {
      node.append(document.importNode(child, true));
      continue;
    }
    const after = at.nextSibling;
    become(at, child);
    at = after;
  }
  while (at) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
};

if ("live" in document.body.dataset) {
  const pause = document.getElementById("pause");
  const trouble = document.getElementById("trouble");
  const say = (text) => { if (trouble.textContent !== text) trouble.textContent = text; };
  const show = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("main [data-live]")) {
      const now = next.getElementById(part.id);
      if (now) become(part, now);
    }
    say("");
  };
  let paused = false;
  const inView = () => !paused && !document.hidden;

  // The server sends the page again while it is in view. Where it cannot, the page is asked for.
  let events = null;
  let asks = 0;
  const close = () => { events?.close(); events = null; clearTimeout(asks); };
  const open = () => {
    close();
    if (!inView()) return;
    const stream = events = new EventSource(location.href);
    stream.onmessage = (e) => show(JSON.parse(e.data));
    stream.addEventListener("again", (e) => { close(); asks = setTimeout(open, Number(e.data)); });
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED) ask();
      else say("Not up to date: the console does not answer.");
    };
  };
  const refresh = async () => {
    const response = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(15000) });
    if (response.status === 401) return say("You are signed out. Load the page again to sign in.");
    if (!response.ok) return say("Not up to date: the console answers " + response.status + ".");
    show(await response.text());
  };
  const ask = async () => {
    close();
    const began = performance.now();
    try {
      await refresh();
    } catch {
      say("Not up to date: the console does not answer.");
    }
    // A slow answer is asked for less often.
    asks = setTimeout(open, Math.max(5000, 10 * (performance.now() - began)));
  };

  document.addEventListener("visibilitychange", open);
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    open();
  });
  pause.hidden = false;
  open();
}
