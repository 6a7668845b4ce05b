"use strict";

const $ = (selector, within = document) => within.querySelector(selector);
const cards = new Map(); // order number -> its card
const currencies = new Map();

const getJSON = async (path) => {
  const response = await fetch(path);
  if (!response.ok) throw new Error(path + " answers " + response.status);
  return response.json();
};

const element = (tag, className, text) => {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
};

const badge = (outcome) => element("span", "badge " + outcome.replace(" ", "-"), outcome);

const chosen = () => $("input[name=protect]:checked")?.value ?? "";

// ask sends one request for a refund, as any client of the service would. The
// button is not disabled meanwhile: that would hide what the server is for.
async function ask(order, amount, refund) {
  const url = "/orders/" + encodeURIComponent(order) + "/refunds?protect=" + encodeURIComponent(chosen());
  try {
    const response = await fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ refund, amount }),
    });
    const body = await response.json();
    if (response.status === 201) return { outcome: "executed", text: amount + " paid out" };
    if (response.status === 200) return { outcome: "replayed", text: "answered from the first request, nothing paid" };
    const outcome = { mismatch: "mismatch", in_progress: "in progress", unknown: "unknown" }[body.code] ?? "rejected";
    return { outcome, text: body.detail };
  } catch {
    return { outcome: "unknown", text: "the service did not answer: ask again with the same number" };
  }
}

// press sends times requests at the same instant and says how they ended.
async function press(order, times) {
  const card = cards.get(order);
  const amount = $(".amount", card).value.trim();
  const refund = $(".refund-no", card).value.trim();
  const answers = await Promise.all(Array.from({ length: times }, () => ask(order, amount, refund)));
  const last = $(".last", card);
  last.hidden = false;
  last.replaceChildren(...answers.flatMap((a) => [badge(a.outcome), document.createTextNode(" " + a.text), element("br")]));
  $("#outcome").textContent = answers.map((a) => "Order " + order + ", refund " + refund + ": " + a.outcome + ", " + a.text).join(". ");
  await refresh();
}

function addCard(o) {
  const card = $("#order-template").content.firstElementChild.cloneNode(true);
  card.dataset.order = o.order;
  $("h3", card).textContent = o.order;
  $(".customer", card).textContent = "paid by " + o.customer;
  $(".refund", card).setAttribute("aria-label", "Refund order " + o.order);
  $(".double", card).setAttribute("aria-label", "Double-click for me: refund order " + o.order + " twice at once");
  $(".refund", card).addEventListener("click", () => press(o.order, 1));
  $(".double", card).addEventListener("click", () => press(o.order, 2));
  for (const input of card.querySelectorAll("input")) {
    input.addEventListener("keydown", (e) => { if (e.key === "Enter") press(o.order, 1); });
  }
  cards.set(o.order, card);
  return card;
}

// showOrders updates the cards where they are, so that what a person types and
// where the keyboard is stay as they were.
function showOrders(orders) {
  const list = $("#orders");
  orders.forEach((o, i) => {
    const card = cards.get(o.order) ?? addCard(o);
    if (list.children[i] !== card && !card.isConnected) list.insertBefore(card, list.children[i] ?? null);
    currencies.set(o.order, o.currency);
    const bar = $(".bar", card);
    bar.setAttribute("aria-valuemax", o.paid);
    bar.setAttribute("aria-valuenow", o.refunded);
    bar.setAttribute("aria-label", "refunded of order " + o.order);
    bar.firstElementChild.style.width = 100 * o.refunded / o.paid + "%";
    $(".refunded", card).textContent = o.refunded;
    $(".paid", card).textContent = o.paid + " " + o.currency;
    card.classList.toggle("wrong", o.duplicates > 0);
    const twice = $(".twice", card);
    twice.hidden = o.duplicates === 0;
    twice.textContent = o.duplicates > 1 ? o.duplicates + " refunds too many" : "refunded twice";
  });
  for (const [number, card] of cards) {
    if (!orders.some((o) => o.order === number)) { card.remove(); cards.delete(number); }
  }
  const total = (field) => orders.reduce((n, o) => n + o[field], 0);
  $("#refund-count").textContent = total("refunds");
  $("#duplicate-count").textContent = total("duplicates");
  $("#duplicate-count").classList.toggle("bad", total("duplicates") > 0);
  warn(orders.filter((o) => o.duplicates > 0));
}

function warn(wrong) {
  const text = wrong.map((o) => o.duplicates === 1
    ? "Order " + o.order + " was refunded twice for one request."
    : "Order " + o.order + " was refunded " + o.duplicates + " times too often.").join(" ");
  const banner = $("#banner");
  if (banner.textContent !== text) banner.textContent = text; // announced once
  banner.hidden = text === "";
}

let newest = -1;
function showEvents(events) {
  if (events.length > 0 && events[0].seq === newest) return;
  newest = events[0]?.seq ?? newest;
  $("#no-events").hidden = events.length > 0;
  $("#events").replaceChildren(...events.map((e) => {
    const item = element("li");
    const what = element("span", "what", e.order + " · no. " + e.refund + " · " + e.amount);
    const how = element("span", "how", e.protect + " · " + e.millis + " ms · " + new Date(e.time).toLocaleTimeString([], { hour12: false }));
    item.append(badge(e.outcome), what, how);
    if (e.detail) item.append(element("span", "detail", e.detail));
    return item;
  }));
}

function showLedger(ledger) {
  const currency = currencies.values().next().value ?? "";
  $("#paid-out").textContent = ledger.paid_out + " " + currency;
  $("#no-ledger").hidden = ledger.entries.length > 0;
  $("#ledger").replaceChildren(...ledger.entries.map((e) => {
    const row = element("tr");
    row.append(element("td", "id", e.refund_id.slice(0, 9) + "…"), element("td", "", e.account), element("td", "number", e.amount));
    return row;
  }));
}

// refresh reads everything again. The tables decide what is shown, not what
// this page believes to have happened.
async function refresh() {
  try {
    const [orders, events, ledger] = await Promise.all([getJSON("/orders"), getJSON("/events"), getJSON("/ledger")]);
    showOrders(orders.orders);
    showEvents(events.events);
    showLedger(ledger);
    document.body.classList.remove("offline");
  } catch {
    document.body.classList.add("offline");
  }
}

async function start() {
  const { protections, default: standard } = await getJSON("/protections");
  $("#protections").replaceChildren(...protections.map((p) => {
    const label = element("label", "choice" + (p.safe ? "" : " unsafe") + (p.refused ? " refused" : ""));
    const input = element("input");
    Object.assign(input, { type: "radio", name: "protect", value: p.name, checked: p.name === standard, disabled: Boolean(p.refused) });
    const text = element("span", "choice-text");
    text.append(element("b", "", p.name), element("span", "", p.says));
    if (p.refused) text.append(element("span", "why", "Not on this database. " + p.refused));
    label.append(input, text);
    return label;
  }));
  $("#new-order").addEventListener("click", async () => {
    const response = await fetch("/orders", { method: "POST" });
    const order = await response.json();
    await refresh();
    $("#outcome").textContent = "Order " + order.order + " added";
  });
  await refresh();
  document.body.classList.add("ready");
  setInterval(() => { if (!document.hidden) refresh(); }, 1000);
}
start();
