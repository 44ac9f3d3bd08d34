// The pages work without this. With it, times are in the reader's zone, fields that depend on others come and go at once, and a button says that there are changes.
"use strict";

// The pages are in English, so their times are too: as the reader spells it, if they do.
const english = navigator.languages.find((each) => /^en\b/i.test(each)) ?? "en-GB";
const clock = new Intl.DateTimeFormat(english, {
  day: "numeric",
  month: "long",
  year: "numeric",
  hour: "numeric",
  minute: "2-digit",
  timeZoneName: "short",
});

for (const time of document.querySelectorAll("time[datetime]")) {
  const date = new Date(time.dateTime);
  if (!Number.isNaN(date.getTime())) {
    time.title = time.textContent;
    time.textContent = clock.format(date);
  }
}

const tests = {
  eq: (value, other) => value.includes(String(other)),
  neq: (value, other) => !value.includes(String(other)),
  in: (value, others) => Array.isArray(others) && others.some((each) => value.includes(String(each))),
  gt: (value, other) => value.length > 0 && compare(value[0], other) > 0,
  lt: (value, other) => value.length > 0 && compare(value[0], other) < 0,
};

function compare(value, other) {
  const [a, b] = typeof other === "number" ? [Number(value), other] : [value, String(other)];
  return a > b ? 1 : a < b ? -1 : 0;
}

function valuesOf(form, key) {
  return new FormData(form).getAll(`f.${key}`).map(String).filter((each) => each.trim() !== "");
}

// The server decides again what is shown; this only saves a round trip.
function reveal(form) {
  for (const field of form.querySelectorAll("[data-when]")) {
    const { field: key, operator, value } = JSON.parse(field.dataset.when);
    const asked = form.querySelector(`[data-field="${CSS.escape(key)}"]`);
    if (!asked) continue;
    const shown = !asked.disabled && tests[operator](valuesOf(form, key), value);
    field.hidden = field.disabled = !shown;
  }
}

for (const form of document.forms) {
  if (!form.querySelector("[data-when]")) continue;
  form.addEventListener("input", () => reveal(form));
  window.addEventListener("pageshow", () => reveal(form));
}

// Changed arguments and a decision for the call as it was: the server asks which is meant. This only says so before.
function isChanged(field) {
  if (!field.name.startsWith("arg.")) return false;
  return field.type === "radio" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
}

function relabel(form) {
  const changed = "edited" in form.dataset || Array.from(form.elements).some(isChanged);
  for (const button of form.querySelectorAll("[data-changed]")) {
    button.dataset.plain ??= button.textContent;
    button.textContent = changed ? button.dataset.changed : button.dataset.plain;
  }
}

for (const form of document.forms) {
  if (!form.querySelector("details.change")) continue;
  form.addEventListener("input", () => relabel(form));
  window.addEventListener("pageshow", () => relabel(form));
}

document.getElementById("problems")?.focus();
